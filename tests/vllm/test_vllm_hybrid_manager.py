"""The hybrid KV cache manager: what turns it off, and what that costs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from packaging.version import Version
from planning import gpt_oss, gpu, heads, llama_8b, model, pool, settings, state
from serving import MAMBA_HYBRID, refused, settle
from serving import model as read

from pytest_llmserve.runtimes.vllm.hybrid_manager import (
    UnknownLayoutError,
    connectors_of,
    is_hybrid_manager_off,
)
from pytest_llmserve.runtimes.vllm.plan import make_plan
from pytest_llmserve.runtimes.vllm.version_rules import kv_rules
from pytest_llmserve.units import GIB

if TYPE_CHECKING:
    from pytest_llmserve.models.spec import ModelSpec

GPT_OSS = gpt_oss(24)
CHUNKED = model(
    [heads(8, 128) if i % 4 == 3 else heads(8, 128, 8192, kind="chunked") for i in range(48)]
)
GEMMA4 = model([heads(2, 512) if i % 6 == 5 else heads(8, 256, 1024) for i in range(30)])
STATES = model([state("gdn", (3, 8192), (32, 128, 128)), heads(2, 256)])
NIXL = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
LMCACHE = {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}


def is_off(*names: str, version: str = "0.32.0", spec: ModelSpec = GPT_OSS, **changed: Any) -> bool:
    stated = settings(kv_connectors=names, **changed)
    return is_hybrid_manager_off(stated, kv_rules(Version(version)), spec)


def test_connectors_inside_a_multi_connector() -> None:
    children = {"connectors": [NIXL, {"kv_connector": "OffloadingConnector"}]}
    many = {"kv_connector": "MultiConnector", "kv_connector_extra_config": children}
    assert connectors_of(many) == ("NixlConnector", "OffloadingConnector")
    assert connectors_of(NIXL) == ("NixlConnector",)
    assert connectors_of(None) == ()
    assert connectors_of("text") == ()


@pytest.mark.parametrize(
    ("names", "version", "expected"),
    [
        # 0.21.0: "Turning off hybrid kv cache manager because `--kv-transfer-config` is set."
        (("NixlConnector",), "0.21.0", True),
        (("NixlConnector",), "0.25.1", False),
        # 0.22.1: "connector LMCacheConnectorV1 does not subclass `SupportsHMA`."
        (("LMCacheConnectorV1",), "0.22.1", True),
        (("LMCacheConnectorV1",), "0.33.0", True),
        # One child without support turns it off for all.
        (("NixlConnector", "LMCacheConnectorV1"), "0.33.0", True),
        (("NixlConnector", "OffloadingConnector"), "0.33.0", False),
        ((), "0.21.0", False),
    ],
)
def test_connectors_by_version(names: tuple[str, ...], version: str, expected: bool) -> None:
    assert is_off(*names, version=version) is expected


@pytest.mark.parametrize(
    ("names", "version"), [(("NixlConnector",), "0.22.1"), (("MyConnector",), "0.33.0")]
)
def test_what_is_not_known_of_a_connector_is_said(names: tuple[str, ...], version: str) -> None:
    with pytest.raises(UnknownLayoutError, match=names[0]):
        is_off(*names, version=version)
    stated = settings(kv_connectors=names)
    found = make_plan(stated, version=Version(version), model=GPT_OSS, gpu=gpu())
    assert found.kv is None
    assert "--no-disable-hybrid-kv-cache-manager" in found.unknown[0].why


def test_a_connector_matters_only_where_layers_differ() -> None:
    assert not is_off("MyConnector", spec=llama_8b())
    assert not is_off("LMCacheConnectorV1", version="0.12.0", spec=llama_8b())


def test_the_flag_decides_where_it_is_stated() -> None:
    config = json.dumps(NIXL)
    line = f"--kv-transfer-config '{config}' --no-disable-hybrid-kv-cache-manager"
    stated = settle(line, version="0.21.0")
    assert stated.kv_connectors == ("NixlConnector",)
    assert not is_hybrid_manager_off(stated, kv_rules(Version("0.21.0")), GPT_OSS)
    assert is_off(disable_hybrid_kv_cache_manager=True)


def test_windows_lose_their_saving_beside_a_connector() -> None:
    # gpt-oss-20b: 12 full and 12 sliding layers; without the manager all 24 keep every token.
    kept = pool(GPT_OSS, "0.25.1", kv_connectors=("NixlConnector",), max_model_len=131072)
    lost = pool(GPT_OSS, "0.25.1", kv_connectors=("LMCacheConnectorV1",), max_model_len=131072)
    assert len(kept.layout.groups) == 2
    assert len(lost.layout.groups) == 1
    size = 20 * GIB
    times = [p.capacity(p.num_blocks(size), 131072)[1] for p in (kept, lost)]
    assert times[0] > 1.8 * times[1]


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("0.21.0", "failed to convert the KV cache specs to one unified type"),
        ("0.33.0", "Failed to promote local KV cache specs to one unified type"),
    ],
)
def test_states_refuse_to_start_without_it(version: str, says: str) -> None:
    line = f"--kv-transfer-config '{json.dumps(LMCACHE)}'"
    found = refused(line, version=version, of=read(**MAMBA_HYBRID))
    assert [refusal.rule for refusal in found] == ["other"]
    assert says in found[0].server_says
    assert "LMCacheConnectorV1" in found[0].headline
    assert not refused("", version=version, of=read(**MAMBA_HYBRID))


def test_chunked_layers_lose_the_saving_with_eagle_or_by_environment() -> None:
    rules = kv_rules(Version("0.32.0"))
    variable = "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE"
    assert not is_hybrid_manager_off(settings(), rules, CHUNKED)
    assert is_hybrid_manager_off(settings(env={variable: "0"}), rules, CHUNKED)
    assert is_hybrid_manager_off(settings(speculative_method="eagle3"), rules, CHUNKED)
    assert not is_hybrid_manager_off(settings(speculative_method="eagle3"), rules, GEMMA4)
    old = kv_rules(Version("0.11.0"))
    assert is_hybrid_manager_off(settings(), old, CHUNKED)
    assert not is_hybrid_manager_off(settings(env={variable: "1"}), old, CHUNKED)
