"""Reading the policy: nearest ``llmserve.toml`` or ``pyproject.toml`` above a file, validated."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from packaging.version import InvalidVersion, Version
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from pytest_llmserve.guard_schema import TABLES as GUARD_TABLES
from pytest_llmserve.guard_schema import GuardTables
from pytest_llmserve.invariants.names import NAMES, canonical_name
from pytest_llmserve.lengths import Lengths, fixed, from_histogram, from_percentiles, independent
from pytest_llmserve.manifests.options import OwnForm, ReadOptions
from pytest_llmserve.policy import (
    Budget,
    Facts,
    Policy,
    ServerRule,
    Slo,
    Workload,
    parse_budget,
)
from pytest_llmserve.units import parse_seconds
from pytest_llmserve.verdict import Certainty

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self


class PolicyError(ValueError):
    """A policy that cannot be used; the message names file, line, key, value and valid ones."""


def _budget(value: object) -> object:
    if isinstance(value, str):
        return parse_budget(value)
    raise ValueError("expected a size such as '76GiB' or a share of the GPU such as '90%'")


def _duration(value: object) -> object:
    if isinstance(value, str):
        return parse_seconds(value)
    raise ValueError("expected a duration with its unit, such as '50ms' or '1.5s'")


def _version(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("expected a version in quotes, such as '0.19.1'")
    try:
        return Version(value.removeprefix("v"))
    except InvalidVersion:
        raise ValueError("expected a version such as '0.19.1'") from None


def _invariant(value: object) -> object:
    name = canonical_name(value) if isinstance(value, str) else None
    if name is None:
        close = difflib.get_close_matches(str(value), NAMES.values(), n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"{hint}valid names: {', '.join(NAMES.values())}")
    return name


def _pattern(value: object) -> object:
    """What ``Path.glob`` takes; another type is told by its own message."""
    if isinstance(value, str):
        path = PurePath(value)
        if path.anchor or not path.parts:
            raise ValueError("expected a relative pattern such as deploy/*.yaml")
    return value


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


Positive = Annotated[int, Field(gt=0, strict=True)]
PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Duration = Annotated[float, BeforeValidator(_duration), Field(gt=0)]
FilePattern = Annotated[str, BeforeValidator(_pattern)]
InvariantName = Annotated[str, BeforeValidator(_invariant)]


def _lengths(value: object) -> object:
    """Tokens, or percentiles of them."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return fixed(value)
    if isinstance(value, dict) and value:
        wrong = [v for v in value.values() if not isinstance(v, int) or v < 1]
        if not wrong:
            return from_percentiles(value)
    raise ValueError("expected a number of tokens from 1 on, or { p50 = 900, p90 = 4000, max = … }")


TokenLengths = Annotated[Lengths, BeforeValidator(_lengths)]


class _Workload(_Strict):
    prompt_tokens: TokenLengths | None = None
    output_tokens: TokenLengths | None = None
    lengths_file: str | None = None
    concurrency: Positive = 1
    rate_per_s: PositiveNumber | None = None

    @model_validator(mode="after")
    def _has_lengths(self) -> Self:
        names = ("prompt_tokens", "output_tokens")
        missing = [name for name in names if getattr(self, name) is None]
        if self.lengths_file is None and missing:
            raise ValueError(f"{' and '.join(missing)} missing (or give a lengths_file)")
        if self.lengths_file is not None and len(missing) < len(names):
            raise ValueError("expected lengths_file or prompt_tokens and output_tokens, not both")
        return self

    def workload(self, base_dir: Path) -> Workload:
        if self.lengths_file is not None:
            found = from_histogram(base_dir / self.lengths_file)
        else:
            assert self.prompt_tokens is not None
            assert self.output_tokens is not None
            found = independent(self.prompt_tokens, self.output_tokens)
        return Workload(
            prompt_tokens=math.ceil(found.prompt.mean),
            output_tokens=math.ceil(found.output.mean),
            concurrency=self.concurrency,
            rate_per_s=self.rate_per_s,
            longest_request=found.total.longest if found.total.deviation else None,
            request_deviation=found.total.deviation,
        )


class _Slo(_Strict):
    ttft: Duration | None = None
    tpot: Duration | None = None
    ttft_expected: Duration | None = None
    tpot_expected: Duration | None = None


class _Price(_Strict):
    usd_per_gpu_hour: PositiveNumber


class _Cost(_Strict):
    max_usd_per_million_tokens: PositiveNumber


class _Facts(_Strict):
    gpu: str | None = None
    gpu_count: Positive | None = None
    model: str | None = None
    vllm_version: Annotated[Version, BeforeValidator(_version)] | None = None
    vram_budget: Annotated[Budget, BeforeValidator(_budget)] | None = None
    workload: _Workload | None = None
    slo: _Slo | None = None
    price: _Price | None = None
    cost: _Cost | None = None

    def facts(self, base_dir: Path) -> Facts:
        return Facts(
            gpu=self.gpu,
            gpu_count=self.gpu_count,
            model=self.model,
            vllm_version=self.vllm_version,
            vram_budget=self.vram_budget,
            workload=self.workload.workload(base_dir) if self.workload else None,
            slo=_slo(self.slo) if self.slo else None,
            usd_per_gpu_hour=self.price.usd_per_gpu_hour if self.price else None,
            max_usd_per_million_tokens=(
                self.cost.max_usd_per_million_tokens if self.cost else None
            ),
        )


def _slo(raw: _Slo) -> Slo:
    return Slo(
        ttft_s=raw.ttft,
        tpot_s=raw.tpot,
        ttft_expected_s=raw.ttft_expected,
        tpot_expected_s=raw.tpot_expected,
    )


class _Server(_Facts):
    file: str = "*"
    name: str = "*"


class _Form(_Strict):
    file: str
    argv: str
    servers: str = ""
    name: str = ""
    model: str = ""
    image: str = ""
    env: str = ""
    gpu: str = ""
    gpu_count: str = ""


class _Policy(_Facts, GuardTables):
    files: list[FilePattern] = []
    models: str | list[str] = []
    gpus: str | None = None
    model_paths: dict[str, str] = {}
    fail_on: list[Literal["certain", "likely", "close"]] = ["certain", "likely"]
    allow_cannot_tell: list[InvariantName] = []
    extend_select: list[InvariantName] = []
    server: list[_Server] = []
    render: list[Literal["helm", "kustomize"]] = []
    form: list[_Form] = []


_TABLES: dict[str, type[BaseModel]] = {
    "workload": _Workload,
    "slo": _Slo,
    "price": _Price,
    "cost": _Cost,
    "server": _Server,
    "form": _Form,
}


def parse_policy(table: dict[str, Any], *, origin: str, base_dir: Path, text: str = "") -> Policy:
    """A checked policy from a TOML table.

    Raises:
        PolicyError: a key or value is wrong.
    """
    try:
        raw = _Policy.model_validate(table)
    except ValidationError as error:
        raise PolicyError(_explain(error, origin, text)) from None
    try:
        facts = raw.facts(base_dir)
        servers = [
            ServerRule(facts=s.facts(base_dir), file=s.file, name=s.name) for s in raw.server
        ]
    except ValueError as error:  # a file of lengths
        line = _line_of(text, ("lengths_file",))
        where = f"{origin}:{line}" if line else origin
        raise PolicyError(f"{where}: lengths_file: {error}") from None
    return Policy(
        base_dir=base_dir,
        origin=origin,
        files=tuple(raw.files),
        models=(raw.models,) if isinstance(raw.models, str) else tuple(raw.models),
        gpus=raw.gpus,
        model_paths=raw.model_paths,
        fail_on=frozenset(Certainty(c) for c in raw.fail_on),
        allow_cannot_tell=frozenset(raw.allow_cannot_tell),
        extend_select=frozenset(raw.extend_select),
        facts=facts,
        servers=tuple(servers),
        reading=ReadOptions(
            render=frozenset(raw.render),
            forms=tuple(OwnForm(**f.model_dump(), origin=origin) for f in raw.form),
            base_dir=base_dir,
        ),
        guard=raw.guard_rules(),
    )


_EXPECTED: Final = {
    "string_type": "text in quotes",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
}
"""What a type error of pydantic asks for, in words of TOML."""


def _explain(error: ValidationError, origin: str, text: str) -> str:
    """Every wrong key of the policy, one line each."""
    lines: dict[str, None] = {}
    for item in error.errors():
        path = [p for p in item["loc"] if isinstance(p, int) or _is_key(p)]
        key = ".".join(str(p) for p in path)
        where = f"{origin}:{line}" if (line := _line_of(text, item["loc"])) else origin
        value = item["input"]
        if item["type"] == "extra_forbidden":
            valid = _valid_keys(item["loc"])
            close = difflib.get_close_matches(str(item["loc"][-1]), valid, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            lines[f"{where}: unknown key {key!r}; {hint}valid keys: {', '.join(valid)}"] = None
        elif item["type"] == "missing":
            lines[f"{where}: {'.'.join(str(p) for p in path[:-1])}: {path[-1]!r} is missing"] = None
        else:
            message = _expected(item["type"], item["msg"])
            lines[f"{where}: {key} = {value!r}: {message}"] = None
    return "\n".join(lines)


def _is_key(step: str) -> bool:
    """Whether a step of pydantic's path is a key of the file, not a branch of a union."""
    return step != "str" and (step.isidentifier() or "-" in step)


def _expected(kind: str, message: str) -> str:
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}"
    if kind.startswith(("greater_than", "less_than")):
        return message.replace("Input should be ", "expected a number ")
    return message.removeprefix("Value error, ").replace("Input should be ", "expected ")


def _valid_keys(loc: tuple[int | str, ...]) -> list[str]:
    names = [p for p in loc[:-1] if isinstance(p, str)]
    last = names[-1] if names else ""
    model: type[BaseModel] = _Policy
    for tables in (_TABLES, GUARD_TABLES):
        model = tables.get(last, model)
    return sorted(model.model_fields)


def _line_of(text: str, loc: tuple[int | str, ...]) -> int | None:
    """The line of the key, found by its text: TOML readers give no positions."""
    for key in reversed([p for p in loc if isinstance(p, str)]):
        if (line := _line_naming(text, re.escape(key))) is not None:
            return line
    return None


def _line_naming(text: str, key: str) -> int | None:
    for pattern in (
        rf"\s*(?:[\w.\"'-]+\.)?[\"']?{key}[\"']?\s*=",
        rf".*\b{key}[\"']?\s*=",
        rf".*\b{key}\b",
    ):
        for number, line in enumerate(text.splitlines(), start=1):
            if re.match(pattern, line):
                return number
    return None


def _load(path: Path) -> tuple[dict[str, Any] | None, str]:
    try:
        text = path.read_text(encoding="utf-8")
        if path.name == "pyproject.toml" and "llmserve" not in text:
            return None, text
        table = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PolicyError(f"{path}: cannot be read: {error}") from None
    if path.name == "pyproject.toml":
        tool = table.get("tool")
        section = tool.get("llmserve") if isinstance(tool, dict) else None
    else:
        section = table
    if section is None:
        return None, text
    if not isinstance(section, dict):
        raise PolicyError(f"{path}: tool.llmserve = {section!r}: expected a table")
    return section, text


def read_policy(folder: Path, *, root: Path | None = None) -> Policy | None:
    """The policy of one folder, or ``None``; messages name it relative to ``root``.

    Raises:
        PolicyError: it cannot be read, a key or value is wrong, or two policies stand there.
    """
    found: list[tuple[Path, dict[str, Any], str]] = []
    for name in ("llmserve.toml", "pyproject.toml"):
        path = folder / name
        if path.is_file():
            table, text = _load(path)
            if table is not None:
                found.append((path, table, text))
    if not found:
        return None
    if len(found) == 2:
        both = f"{found[0][0]} and [tool.llmserve] of {found[1][0].name}"
        raise PolicyError(f"{both}: two policies in one folder; keep one of them")
    path, table, text = found[0]
    origin = path.relative_to(root).as_posix() if root and path.is_relative_to(root) else str(path)
    return parse_policy(table, origin=origin, base_dir=folder, text=text)
