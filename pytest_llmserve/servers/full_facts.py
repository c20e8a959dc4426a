"""All that is known of a server as plain data, for the reports that write it."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from pytest_llmserve.invariants.phases import (
    decode_context,
    decode_floor,
    prefill_floor,
    prompt_tokens,
)
from pytest_llmserve.runtimes.deployment import Setting
from pytest_llmserve.servers.facts import brief_facts, location_facts, tightest

if TYPE_CHECKING:
    from pytest_llmserve.runtimes.deployment import Deployment, ServingSettings
    from pytest_llmserve.servers.server import Server
    from pytest_llmserve.subject import Subject


def full_facts(server: Server) -> dict[str, Any]:
    """The brief facts, and settings with their sources, model, GPU and roofline."""
    subject = tightest(server)
    deployment = subject.deployment
    launch = server.launch
    return {
        **brief_facts(server),
        "form": launch.form if launch else "python",
        "replicas": launch.replicas if launch else None,
        "runtime": {
            "name": deployment.runtime,
            "version": str(deployment.version.value),
            "is_assumed": deployment.is_version_assumed,
            "source": deployment.version.source,
        },
        "model": _model_facts(deployment),
        "gpu": _gpu_facts(deployment, server),
        "settings": settings_facts(deployment.settings),
        "roofline": _roofline_facts(subject),
    }


def settings_facts(settings: ServingSettings) -> dict[str, Any]:
    """Every setting with its value and where it came from."""
    out: dict[str, Any] = {}
    for field in fields(settings):
        setting = getattr(settings, field.name)
        if isinstance(setting, Setting):
            out[field.name] = {
                "value": setting.value,
                "source": setting.source,
                "location": location_facts(setting.location),
            }
    return out


def _model_facts(deployment: Deployment) -> dict[str, Any] | None:
    ref = deployment.model_ref
    if ref is None:
        return None
    model = deployment.model
    return {
        "ref": ref.value,
        "id": model.id if model else None,
        "source": model.source if model else None,
    }


def _roofline_facts(subject: Subject) -> dict[str, Any] | None:
    """Floors of a decode step at batch 1 and of a prompt; ``None`` where a figure is unknown."""
    deployment = subject.deployment
    if deployment.model is None or deployment.gpu is None:
        return None
    tokens = prompt_tokens(subject)
    try:
        decode = decode_floor(subject, 1, decode_context(subject))
        prefill = prefill_floor(subject, tokens)
    except ValueError:  # the model does not divide by TP, or a KV dtype it has no form for
        return None
    if decode is None or prefill is None:
        return None
    return {
        "ridge_flop_per_byte": decode.ridge_flop_per_byte,
        "decode_intensity_flop_per_byte": decode.intensity_flop_per_byte,
        "decode_bound": str(decode.bound),
        "tpot_floor_s": decode.floor_s,
        "prefill_tokens": tokens,
        "prefill_intensity_flop_per_byte": prefill.intensity_flop_per_byte,
        "prefill_bound": str(prefill.bound),
        "ttft_floor_s": prefill.floor_s,
    }


def _gpu_facts(deployment: Deployment, server: Server) -> dict[str, Any]:
    count = deployment.gpu_count
    ids = [s.deployment.gpu.id for s in server.subjects if s.deployment.gpu]
    return {
        "id": deployment.gpu.id if deployment.gpu else None,
        "source": deployment.gpu_source,
        "count": count.value if count else None,
        "count_source": count.source if count else "",
        "alternatives": ids,
    }
