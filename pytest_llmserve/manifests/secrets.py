"""Values that must not be echoed: keys, tokens, passwords, pre-authenticated URLs."""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "***"
_SECRET_WORDS: Final = frozenset(
    {"token", "key", "secret", "secrets", "password", "passwd", "passphrase", "pwd", "apikey"}
    | {"credential", "credentials", "auth", "authorization"}
)
_HARMLESS: Final = re.compile(r"-?[0-9.]{1,9}|true|false|yes|no|none|auto|null|", re.IGNORECASE)
_URL_LOGIN: Final = re.compile(r"(?<=://)[^/@\s]+:[^/@\s]+(?=@)")
_URL_QUERY: Final = re.compile(
    r"(?<=[?&])((?:x-amz-|x-goog-)?(?:signature|credential|security-token|token|sig|key)=)[^&\s\"']+",
    re.IGNORECASE,
)
_URL_PRE_AUTH: Final = re.compile(r"(objectstorage[^/\s]*/p/)[^/\s]+")
_KNOWN_TOKEN: Final = re.compile(r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,})")


def is_secret_name(name: str) -> bool:
    """Whether a key or variable of this name holds a secret (``HF_TOKEN``, ``AWS_ACCESS_KEY_ID``).

    ``max_num_batched_tokens``, ``tokenizer`` and ``ssl-keyfile`` do not.
    """
    return not _SECRET_WORDS.isdisjoint(re.split(r"[^a-z]+", name.lower()))


def is_secret_flag(flag: str) -> bool:
    """Whether a flag's value is a secret: ``--api-key``, and not ``--long-prefill-token-...``."""
    return re.split(r"[^a-z]+", flag.lower())[-1] in _SECRET_WORDS


def masked(name: str, value: str) -> str:
    """``value`` of the key ``name``, or ``***``. Numbers and switches are no secrets."""
    if is_secret_name(name) and not _HARMLESS.fullmatch(value):
        return MASK
    return masked_text(value)


def masked_text(text: str) -> str:
    """``text`` with logins, signatures and well-known token shapes replaced."""
    if "://" in text:
        text = _URL_LOGIN.sub(MASK, text)
        text = _URL_QUERY.sub(rf"\g<1>{MASK}", text)
        text = _URL_PRE_AUTH.sub(rf"\g<1>{MASK}", text)
    if "hf_" in text or "sk-" in text:
        text = _KNOWN_TOKEN.sub(MASK, text)
    return text


def masked_argv(texts: list[str]) -> list[str]:
    """Arguments with the values of secret flags replaced: ``--api-key X``, ``--api-key=X``."""
    result: list[str] = []
    is_value = False
    for text in texts:
        if text.startswith("-"):
            flag, equals, value = text.partition("=")
            is_value = is_secret_flag(flag) and not equals
            if equals:
                shown = masked(flag, value) if is_secret_flag(flag) else masked_text(value)
                text = f"{flag}={shown}"
            result.append(text)
        else:
            result.append(masked("key", text) if is_value else masked_text(text))
    return result
