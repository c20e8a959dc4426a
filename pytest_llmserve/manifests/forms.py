"""Names of the forms that are met and not read yet, so that the answer is one clear sentence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.servers import names_engine
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar, Sequence

if TYPE_CHECKING:
    from pytest_llmserve.manifests.yaml_nodes import Node

# Kinds that run no pod, or none that serves a model: they are passed over.
HARMLESS_KINDS: Final = frozenset(
    {"Service", "ConfigMap", "Secret", "ServiceAccount", "Namespace", "PersistentVolume"}
    | {"PersistentVolumeClaim", "StorageClass", "Ingress", "NetworkPolicy", "RuntimeClass"}
    | {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "PodDisruptionBudget"}
    | {"HorizontalPodAutoscaler", "PriorityClass", "LimitRange", "ResourceQuota", "IngressClass"}
    | {"CustomResourceDefinition", "PodMonitor", "ServiceMonitor", "PodMonitoring", "Gateway"}
    | {"HTTPRoute", "InferencePool", "InferenceModel", "InferenceObjective", "BackendConfig"}
    | {"ComputeClass", "NodePool", "EC2NodeClass", "ScaledObject", "VirtualService", "Endpoints"}
    | {"DestinationRule", "ExternalSecret", "SecretProviderClass", "PrometheusRule", "Certificate"}
    | {"Issuer", "ComputeDomain", "ResourceClaimTemplate", "ResourceClaim", "DeviceClass", "Lease"}
    | {"HealthCheckPolicy", "GCPBackendPolicy", "ValidatingWebhookConfiguration", "APIService"}
)
# Custom resources that start servers through an operator of theirs.
_OPERATORS: Final[dict[str, str]] = {
    "InferenceService": "KServe",
    "LLMInferenceService": "KServe",
    "LLMInferenceServiceConfig": "KServe",
    "ServingRuntime": "KServe",
    "ClusterServingRuntime": "KServe",
    "RayService": "KubeRay",
    "RayCluster": "KubeRay",
    "RayJob": "KubeRay",
    "RayClusterFleet": "AIBrix",
    "StormService": "AIBrix",
    "Model": "KubeAI",
    "VLLMRuntime": "vLLM production-stack",
    "DynamoGraphDeployment": "Dynamo",
    "Workspace": "KAITO",
    "InferenceSet": "KAITO",
    "MultiRoleInference": "KAITO",
    "OpenModel": "llmaz",
    "Playground": "llmaz",
    "BackendRuntime": "llmaz",
    "RoleBasedGroup": "RBG",
    "NIMService": "NVIDIA NIM operator",
    "Kustomization": "kustomize",
    "HelmRelease": "Flux",
    "Application": "Argo CD",
    "Rollout": "Argo Rollouts",
    "Template": "OpenShift",
}
_RENDER: Final[dict[str, str]] = {
    "Kustomization": "give the output of `kustomize build`",
    "HelmRelease": "give the output of `helm template`",
    "Template": "give the output of `oc process`",
}
_RENDERED: Final = "render it (`helm template ...`) and give the output"
_CONTROL: Final = re.compile(
    r"\{\{-?\s*(?:if|range|with|define|include|end|template|else|/\*)\b|\{%"
)
MAX_SHOWN: Final = 5


def kind_form(kind: str) -> str:
    """``kind InferenceService (KServe)`` with what to do in its place."""
    operator = _OPERATORS.get(kind)
    named = f"kind {kind} ({operator})" if operator else f"kind {kind}"
    advice = _RENDER.get(kind, "give the pods it creates (a Deployment, a LeaderWorkerSet)")
    return f"form not read yet: {named}; {advice}"


def runs_servers(root: Mapping) -> bool:
    """Whether an object of an unknown kind seems to start a server."""
    if (root.text("kind") or "") in _OPERATORS:
        return True
    keys, engines = False, False
    for name, node in _walk(root):
        keys |= name in ("containers", "command", "args", "image", "runtime")
        engines |= isinstance(node, Scalar) and names_engine(node.text)
    return keys and engines


def _walk(root: Node) -> list[tuple[str, Node]]:
    found: list[tuple[str, Node]] = []
    stack: list[Node] = [root]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Mapping):
            found.extend(node.entries.items())
            stack.extend(node.entries.values())
        elif isinstance(node, Sequence):
            found.extend(("", item) for item in node.items)
            stack.extend(node.items)
    return found


def mapping_form(root: Mapping) -> str:
    """A sentence that names the first keys of a mapping that no reader knows."""
    shown = ", ".join(list(root.entries)[:MAX_SHOWN])
    more = ", ..." if len(root.entries) > MAX_SHOWN else ""
    return (
        f"not a form that is known: a mapping with the keys {shown}{more}; see docs/forms.md for"
        " those that are, or describe it in the policy ([[tool.llmserve.form]])"
    )


def template_sentence(text: str) -> str | None:
    """What to say of an unrendered template, or None where the text is none."""
    if "{{" not in text and "{%" not in text:
        return None
    match = _CONTROL.search(text)
    if match is not None and match[0].startswith("{%"):
        return "form not read yet: a Jinja template; render it and give the output"
    if match is not None or ".Values" in text or ".Release" in text:
        return f"form not read yet: a Helm template; {_RENDERED}"
    return None


def named_form(name: str) -> str | None:
    """What to say of a file that can hold no server, by its name."""
    lower = name.lower()
    if lower.startswith(".env") or lower.endswith((".env", ".env.example")):
        return "a file of variables starts no server by itself; name the compose file beside it"
    if lower.endswith((".py", ".ipynb", ".go", ".js", ".ts", ".tf", ".tfvars", ".hcl", ".toml")):
        return f"form not read yet: {lower.rsplit('.', 1)[-1]} file"
    if lower.endswith((".md", ".rst", ".adoc")):
        return "form not read yet: a text with examples; name the deployment file itself"
    return None
