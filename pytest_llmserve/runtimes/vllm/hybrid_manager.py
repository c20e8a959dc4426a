"""Whether the hybrid KV cache manager is on: windows and states keep pools of their own, or not.

Source: ``config/vllm.py`` of the release wheels; for connectors the servers' own warnings: 0.21.0
turns it off whenever ``--kv-transfer-config`` is set, 0.22.1 where the connector "does not subclass
`SupportsHMA`" (LMCacheConnectorV1), and vllm-project/vllm#41847.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_llmserve.runtimes.vllm.traits import attention_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_llmserve.models.spec import ModelSpec
    from pytest_llmserve.runtimes.vllm.settings import VllmSettings
    from pytest_llmserve.runtimes.vllm.version_rules import KvRules

# Connectors by whether they keep the manager on, as of 0.25.1 (their classes).
_SUPPORTS: Final[dict[str, bool]] = {
    "DecodeBenchConnector": True,
    "LMCacheConnectorV1": False,
    "MooncakeConnector": True,
    "MooncakeStoreConnector": True,
    "NixlConnector": True,
    "NixlPullConnector": True,
    "NixlPushConnector": True,
    "OffloadingConnector": True,
}
_MANY: Final = "MultiConnector"


class UnknownLayoutError(ValueError):
    """How vLLM lays out the cache hangs on something that is not known."""


def connectors_of(config: object) -> tuple[str, ...]:
    """The connectors that ``--kv-transfer-config`` names, those inside a MultiConnector too."""
    return tuple(_names(config)) if isinstance(config, dict) else ()


def _names(config: Mapping[str, object]) -> Iterator[str]:
    name = config.get("kv_connector")
    extra = config.get("kv_connector_extra_config")
    children = extra.get("connectors") if isinstance(extra, dict) else None
    if isinstance(name, str) and not (name == _MANY and isinstance(children, list)):
        yield name
    for child in children if isinstance(children, list) else ():
        if isinstance(child, dict):
            yield from _names(child)


def is_hybrid_manager_off(settings: VllmSettings, rules: KvRules, model: ModelSpec) -> bool:
    """Whether windows are kept as full attention: asked for, or something disallows the manager.

    Llama 4's chunks lose the saving with EAGLE, or where the version (or
    ``VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE``) does not allow the two together.

    Raises:
        UnknownLayoutError: it matters and hangs on a connector that is not known.
    """
    stated = settings.disable_hybrid_kv_cache_manager
    is_asked = stated.value or (settings.kv_connectors and not stated.is_stated)
    if is_asked and attention_type(model) == "encoder_decoder":
        raise UnknownLayoutError(
            "how cross attention is laid out without the hybrid KV cache manager is not known: "
            "leave out --disable-hybrid-kv-cache-manager and --kv-transfer-config"
        )
    if stated.value:
        return True
    kinds = {
        getattr(cache, "kind", "full")
        for group in model.layer_groups
        for cache in group.layer.caches
    }
    if len(kinds) < 2:
        return False
    if "chunked" in kinds and _bars_chunks(settings, rules):
        return True
    if stated.is_stated or not settings.kv_connectors:
        return False
    return _connectors_bar(settings.kv_connectors, rules)


def _bars_chunks(settings: VllmSettings, rules: KvRules) -> bool:
    if (settings.speculative_method.value or "").startswith("eagle"):
        return True
    default = "1" if rules.has_chunked_hybrid else "0"
    return settings.env.get("VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE", default) == "0"


def _connectors_bar(names: tuple[str, ...], rules: KvRules) -> bool:
    if rules.connectors == "bar":
        return True
    if any(_SUPPORTS.get(name) is False for name in names):
        return True
    unknown = [name for name in names if name not in _SUPPORTS]
    if rules.connectors == "asked" and not unknown:
        return False
    raise UnknownLayoutError(
        f"whether {' and '.join(unknown or names)} keeps the hybrid KV cache manager on is not "
        "known: state --disable-hybrid-kv-cache-manager or --no-disable-hybrid-kv-cache-manager"
    )
