"""``--speculative-config`` and its short forms, as far as memory and refusals need them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_llmserve.runtimes.deployment import Setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_llmserve.runtimes.vllm.args import ParsedArgs, Stated

DRAFT_MODEL: Final = "draft_model"
"""The method that drafts with a whole, smaller model."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Speculative:
    """What drafts tokens, and how many; ``config`` is the JSON as given, empty without one."""

    method: Setting[str | None]
    num_tokens: Setting[int]
    config: Mapping[str, Any]
    is_used: bool

    @property
    def model(self) -> str | None:
        """The draft model as named, ``None`` where the method is told that way or there is none."""
        name = self.config.get("model")
        is_method = not isinstance(name, str) or name.strip("[]").lower() == self.method.value
        return None if is_method else name

    @property
    def tensor_parallel_size(self) -> int | None:
        """Ranks of the draft, where stated: 1 or the target's."""
        size = self.config.get("draft_tensor_parallel_size")
        return size if isinstance(size, int) and not isinstance(size, bool) else None


def read_speculative(args: ParsedArgs) -> Speculative:
    """The speculative settings; the short flags win over keys of the JSON."""
    stated = args.stated.get("speculative_config")
    config = dict(stated.value) if stated is not None and isinstance(stated.value, dict) else {}
    short = {
        "method": args.stated.get("spec_method"),
        "model": args.stated.get("spec_model"),
        "num_speculative_tokens": args.stated.get("spec_tokens"),
    }
    for key, found in short.items():
        if found is not None:
            config[key] = found.value
    tokens = config.get("num_speculative_tokens")
    is_count = isinstance(tokens, int) and not isinstance(tokens, bool)
    return Speculative(
        method=_setting(_method(config), short["method"] or stated),
        num_tokens=_setting(tokens if is_count else 0, short["num_speculative_tokens"] or stated),
        config=config,
        is_used=bool(config),
    )


def _method(config: Mapping[str, Any]) -> str | None:
    """The method as stated, or as the draft's name gives it away."""
    method = config.get("method")
    if isinstance(method, str):
        return method.strip("[]")
    model = config.get("model")
    if not isinstance(model, str):
        return None
    name = model.lower()
    if name in ("ngram", "[ngram]"):
        return "ngram"
    for word in ("eagle3", "eagle", "medusa", "dflash"):
        if word in name.replace("-", ""):
            return word
    return DRAFT_MODEL


def _setting(value: Any, stated: Stated | None) -> Setting[Any]:
    if stated is None:
        return Setting(value, "no speculation")
    return Setting(value, stated.source, stated.location)
