"""Programs around vLLM: which flags they keep for themselves and which they hand on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_llmserve.manifests.words import Field

# Flag -> how many words follow it. Dynamo: components/src/dynamo/vllm/args.py of ai-dynamo/dynamo;
# KServe: python/huggingfaceserver/huggingfaceserver/__main__.py of kserve/kserve.
_OWN: Final[dict[str, dict[str, int]]] = {
    "dynamo.vllm": {
        "--disaggregation-mode": 1,
        "--is-prefill-worker": 0,
        "--is-decode-worker": 0,
        "--migration-limit": 1,
        "--connector": 1,
        "--durable-kv-events": 0,
        "--use-vllm-tokenizer": 0,
        "--sleep-mode-level": 1,
        "--custom-jinja-template": 1,
        "--endpoint": 1,
        "--namespace": 1,
        "--store-kv": 1,
        "--request-plane": 1,
        "--event-plane": 1,
        "--enable-multimodal": 0,
        "--multimodal-processor": 0,
        "--multimodal-encode-worker": 0,
        "--multimodal-worker": 0,
        "--multimodal-decode-worker": 0,
        "--route-to-encoder": 0,
        "--enable-local-indexer": 1,
        "--model-express-url": 1,
        "--publish-events-and-metrics": 0,
    },
    "kserve huggingfaceserver": {
        "--model-name": 1,
        "--model-dir": 1,
        "--model-id": 1,
        "--model-revision": 1,
        "--tokenizer-revision": 1,
        "--backend": 1,
        "--task": 1,
        "--return-token-type-ids": 0,
        "--return-probabilities": 0,
        "--disable-lower-case": 0,
        "--disable-special-tokens": 0,
        "--add-special-tokens": 0,
        "--http-port": 1,
        "--grpc-port": 1,
        "--workers": 1,
        "--predictor-host": 1,
        "--request-logger": 1,
    },
}
_PREFIX: Final = {"dynamo.vllm": "--dyn-"}


def parted(fields: Sequence[Field], entrypoint: str) -> tuple[list[Field], tuple[Field, ...]]:
    """Words for vLLM, and words that the program of this entrypoint keeps."""
    own, prefix = _OWN[entrypoint], _PREFIX.get(entrypoint)
    passed: list[Field] = []
    kept: list[Field] = []
    index = 0
    while index < len(fields):
        flag, equals, _ = fields[index].text.partition("=")
        name = flag.replace("_", "-")
        is_prefixed = prefix is not None and name.startswith(prefix)
        if name not in own and not is_prefixed:
            passed.append(fields[index])
            index += 1
            continue
        width = 0 if equals else own.get(name, _following(fields, index))
        kept.extend(fields[index : index + 1 + width])
        index += 1 + width
    return passed, tuple(kept)


def _following(fields: Sequence[Field], index: int) -> int:
    """Of a flag known by its prefix only: one value, if what follows is none itself."""
    is_value = index + 1 < len(fields) and not fields[index + 1].text.startswith("-")
    return 1 if is_value else 0
