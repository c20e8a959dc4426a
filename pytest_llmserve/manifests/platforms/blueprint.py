"""OCI AI Blueprints: JSON recipes with an argument list, a shape and a GPU count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.containers import read_container
from pytest_llmserve.manifests.found import Container
from pytest_llmserve.manifests.launch import GpuClaim, GpuLabel
from pytest_llmserve.manifests.making import image_of, number
from pytest_llmserve.manifests.pods import PodServer, add_server
from pytest_llmserve.manifests.secrets import masked
from pytest_llmserve.manifests.variables import expand_kubelet, mark_placeholders
from pytest_llmserve.manifests.words import Field
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar

if TYPE_CHECKING:
    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.verdict import Location

_COUNTS: Final = (
    ("recipe_nvidia_gpu_count", "nvidia.com/gpu"),
    ("recipe_amd_gpu_count", "amd.com/gpu"),
)
_NODES: Final = "multinode_num_nodes_to_use_from_shared_pool"


def read_blueprint(root: Mapping, objects: Objects) -> None:
    """The server of one recipe, or of each recipe of a deployment group."""
    group = list(root.mappings("deployment_group", "deployments"))
    for item in group:
        recipe = item.mapping("recipe")
        if recipe is not None:
            read_blueprint(recipe, objects)
    if group:
        return
    values, places = _environment(root)
    arguments = _words(root, "recipe_container_command_args", values)
    command = _words(root, "recipe_container_command", values) or None
    reading = read_container(
        Container(
            image=image_of(root.get("recipe_image_uri")),
            entrypoint=command,
            arguments=arguments,
            environment=values,
            location=root.location,
            beside=objects.gathering.beside,
        )
    )
    name = root.text("deployment_name") or root.text("recipe_id") or "recipe"
    for found in reading.found:
        server = PodServer("", found, _claim(root), tuple(reading.problems), places)
        add_server(
            server,
            objects,
            name=name,
            form="oci blueprint",
            replicas=number(root.get("recipe_replica_count")),
        )
    if not reading.found:
        objects.gathering.problems.extend(reading.problems)
        objects.gathering.ignored.append(f"recipe {name}: {reading.ignored}")


def _words(root: Mapping, key: str, values: dict[str, str]) -> list[Field]:
    """An argument list in which Kubernetes puts the container's variables."""
    return [
        Field(mark_placeholders(expand_kubelet(item.source(), values)))
        for item in root.items(key)
        if isinstance(item, Scalar)
    ]


def _environment(root: Mapping) -> tuple[dict[str, str], dict[str, Location]]:
    values: dict[str, str] = {}
    places: dict[str, Location] = {}
    for item in root.mappings("recipe_container_env"):
        name, value = item.text("key") or item.text("name"), item.text("value")
        if name and value is not None:
            values[name], places[name] = masked(name, value), item.location
    return values, places


def _claim(root: Mapping) -> GpuClaim:
    shape = root.get("recipe_node_shape")
    labels: tuple[GpuLabel, ...] = ()
    if isinstance(shape, Scalar):
        labels = (GpuLabel("recipe_node_shape", (shape.text,), shape.location),)
    nodes = number(root.get(_NODES)) or 1
    profile = root.get("mig_resource_request")
    if isinstance(profile, Scalar):
        return GpuClaim(
            count_per_pod=1,
            count_source="mig_resource_request",
            count_location=profile.location,
            resource=f"nvidia.com/mig-{profile.text.removeprefix('nvidia.com/mig-')}",
            labels=labels,
        )
    for key, resource in _COUNTS:
        node = root.get(key)
        if node is not None:
            return GpuClaim(
                count_per_pod=number(node),
                count_source=key,
                count_location=node.location,
                pods_per_instance=nodes,
                resource=resource,
                labels=labels,
            )
    return GpuClaim(pods_per_instance=nodes, labels=labels)
