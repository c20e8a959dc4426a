"""Ray Serve LLM: ``llm_configs`` with ``engine_kwargs``, in a file or in a ``RayService``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_llmserve.manifests.accelerators import accelerator_claim
from pytest_llmserve.manifests.launch import GpuClaim, GpuLabel
from pytest_llmserve.manifests.making import Made, add, flag_fields, model_field, number, variables
from pytest_llmserve.manifests.text import shown
from pytest_llmserve.manifests.yaml_nodes import Mapping, Scalar
from pytest_llmserve.verdict import Problem, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_llmserve.manifests.kubernetes_parts import Objects
    from pytest_llmserve.manifests.words import Field
    from pytest_llmserve.manifests.yaml_nodes import Node

# Names that serve scripts of Ray's and vLLM's examples read; users' own code, so a hint only.
_MODEL_VARIABLES: Final = ("MODEL_ID", "MODEL_NAME", "MODEL", "HF_MODEL_ID")
_RESOURCE: Final = "accelerator_type_"
_SIZES: Final = ("tensor_parallel_size", "pipeline_parallel_size")


def read_serve_config(root: Mapping, objects: Objects) -> None:
    """A Serve config file: ``applications``."""
    read_applications(root, objects, GpuClaim(), None, "ray serve")


def read_applications(
    root: Mapping, objects: Objects, workers: GpuClaim, image: Field | None, form: str
) -> None:
    """Servers of every application; ``workers`` are the GPUs of one worker pod, where known."""
    for application in root.mappings("applications"):
        arguments = application.mapping("args")
        configs = list(_configs(arguments)) if arguments is not None else []
        for role, config in configs:
            _add(config, role, application, objects, workers, image, form)
        if not configs:
            _own_code(application, objects, workers, image, form)


def read_legacy(root: Mapping, objects: Objects) -> None:
    """RayLLM's model files: ``engine_config`` with ``hf_model_id``."""
    _add(root, "", root, objects, GpuClaim(), None, "rayllm")


def _configs(arguments: Mapping) -> Iterator[tuple[str, Mapping]]:
    for config in arguments.mappings("llm_configs"):
        yield "", config
    for key in ("prefill_config", "decode_config", "llm_config"):
        config_ = arguments.mapping(key)
        if config_ is not None:
            yield key.removesuffix("_config").removeprefix("llm"), config_


def _add(
    config: Mapping,
    role: str,
    application: Mapping,
    objects: Objects,
    workers: GpuClaim,
    image: Field | None,
    form: str,
) -> None:
    engine = config.mapping("engine_config")
    kwargs = (engine or config).mapping("engine_kwargs")
    loading = config.mapping("model_loading_config")
    node = _model(config, engine, loading)
    model = model_field(node)
    if model is None:
        message = "an llm_config without a model"
        objects.gathering.problem(ProblemKind.UNKNOWN, message, config.location)
        return
    name = shown(_name(config, engine, loading, application))
    if role:
        name = f"{name}/{role}"
    values, places = variables(config.get("runtime_env", "env_vars"))
    scaling = config.mapping("deployment_config", "autoscaling_config")
    replicas = number(config.get("deployment_config", "num_replicas"))
    if replicas is None and scaling is not None:
        replicas = number(scaling.get("min_replicas")) or None
    add(
        Made(
            name=name,
            form=form,
            location=config.location,
            fields=[model, *(flag_fields(kwargs) if kwargs else [])],
            image=image,
            environment=values,
            places=places,
            gpu=_claim(config, kwargs, workers),
            replicas=replicas,
            is_typed=True,
        ),
        objects.gathering,
    )


def _model(config: Mapping, engine: Mapping | None, loading: Mapping | None) -> Node | None:
    if engine is not None:
        return engine.get("hf_model_id") or engine.get("model_id")
    if loading is None:
        return config.get("model_id")
    source = loading.get("model_source")
    if isinstance(source, Mapping):
        source = source.get("bucket_uri")
    return source or loading.get("model_id")


def _name(
    config: Mapping, engine: Mapping | None, loading: Mapping | None, application: Mapping
) -> str:
    holder = engine or loading or config
    return holder.text("model_id") or application.text("name") or "llm"


def _claim(config: Mapping, kwargs: Mapping | None, workers: GpuClaim) -> GpuClaim:
    """Ray reserves TP x PP GPUs of the accelerator type, from as many workers as that needs."""
    sizes = [number(kwargs.get(key)) if kwargs is not None else None for key in _SIZES]
    count = (sizes[0] or 1) * (sizes[1] or 1)
    place = kwargs.location if kwargs is not None else config.location
    legacy = _legacy(config)
    if legacy is not None:
        return legacy
    node = config.get("accelerator_type")
    labels = workers.labels
    if isinstance(node, Scalar):
        labels = accelerator_claim([node.text], "accelerator_type", node.location).labels
    per_pod = workers.count_per_pod
    pods = 1
    if per_pod and count > per_pod and count % per_pod == 0:
        pods = count // per_pod
    return GpuClaim(
        count_per_pod=count // pods,
        count_source="tensor_parallel_size x pipeline_parallel_size",
        count_location=place,
        pods_per_instance=pods,
        resource=workers.resource or "nvidia.com/gpu",
        labels=labels,
    )


def _legacy(config: Mapping) -> GpuClaim | None:
    scaling = config.mapping("scaling_config")
    if scaling is None:
        return None
    each, workers = number(scaling.get("num_gpus_per_worker")), number(scaling.get("num_workers"))
    labels: list[GpuLabel] = []
    for path in (("scaling_config", "resources_per_worker"),):
        resources = config.mapping(*path)
        for key in resources.entries if resources is not None else ():
            if key.lower().startswith(_RESOURCE):
                kind = key[len(_RESOURCE) :]
                labels.append(GpuLabel("accelerator_type", (kind,), scaling.location))
    return GpuClaim(
        count_per_pod=(each if each is not None else 1) * (workers or 1),
        count_source="num_gpus_per_worker x num_workers",
        count_location=scaling.location,
        resource="nvidia.com/gpu",
        labels=tuple(labels),
    )


def _own_code(
    application: Mapping, objects: Objects, workers: GpuClaim, image: Field | None, form: str
) -> None:
    """A team's own Serve code: what it does with its variables stands in no file."""
    env = application.get("runtime_env", "env_vars")
    values, places = variables(env)
    name = application.text("name") or "app"
    named = next((v for v in _MODEL_VARIABLES if values.get(v)), None)
    if named is None:
        objects.gathering.ignored.append(f"application {name}: no LLM config")
        return
    message = (
        f"application {name!r} runs code of its own ({application.text('import_path')}): how it"
        " starts the engine stands in no file; declare the server in a Python test"
    )
    count = None
    for deployment in application.mappings("deployments"):
        count = number(deployment.get("ray_actor_options", "num_gpus")) or count
    from pytest_llmserve.manifests.words import field as field_at

    add(
        Made(
            name=name,
            form=form,
            location=application.location,
            entrypoint="user code",
            fields=[field_at(values[named], places[named])],
            image=image,
            environment=values,
            places=places,
            gpu=replace(workers, count_per_pod=count or workers.count_per_pod),
            problems=[Problem(ProblemKind.UNRESOLVED, message, application.location)],
        ),
        objects.gathering,
    )
