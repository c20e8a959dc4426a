"""``find_model``: from a name in a deployment file to a ``ModelSpec``.

Looked at in this order: the policy's models folders, a local folder, the local hub cache, the
bundled catalogue and, only where allowed, the hub itself.
"""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_llmserve.models.errors import BadConfig, ModelNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_llmserve.models.spec import ModelSpec

_MAX_CONFIG_BYTES: Final = 64 * 1024 * 1024
_NO_ALIASES: Final[Mapping[str, str]] = {}


def find_model(
    ref: str,
    *,
    models_folders: Sequence[Path] = (),
    base_dir: Path | None = None,
    aliases: Mapping[str, str] = _NO_ALIASES,
    allow_network: bool = False,
) -> ModelSpec:
    """The exact shape of the model that a deployment names.

    Args:
        ref: a repository id (``Qwen/Qwen3-8B``) or a path, as the deployment file spells it.
        models_folders: where the project keeps configs
            (``<folder>/<org>--<name>/config.json``).
        base_dir: what relative paths start from; the working directory where ``None``.
        aliases: the policy's own names (``/models/llama`` is ``meta-llama/Llama-3.1-8B``).
        allow_network: ask the hub for a config that is nowhere else (needs the ``hub`` extra).

    Raises:
        ModelNotFound: no config anywhere; the message lists the places and what to do.
        UnsupportedModel: a config was found, its architecture is not understood.
        BadConfig: a config was found and is damaged.
    """
    name = aliases.get(ref, ref).strip().removeprefix("hf://")
    if not name or "\0" in name:
        raise ModelNotFound(f"{ref!r} is not a model name")
    root = base_dir if base_dir is not None else Path.cwd()
    looked: list[str] = []
    places = (*_folder_places(name, models_folders, root), _local_place(name, root))
    for path in (*places, *_hub_cache_places(name)):
        looked.append(str(path))
        if _is_file(path):
            return _read(path, name)
    from pytest_llmserve.models.catalogue import find_in_catalogue

    found = find_in_catalogue(name)
    if found is not None:
        return found
    looked.append("the bundled catalogue")
    if allow_network and _is_repository_id(name):
        return _read(_download(name), name)
    raise ModelNotFound(_not_found(name, looked, models_folders))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name too long for the file system, a folder that may not be read
        return False


def _folder_places(name: str, folders: Sequence[Path], root: Path) -> Iterator[Path]:
    """Spellings of a model inside the project's own folders; a name never leads out of them."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in {"", "."}]
    if not parts or ".." in parts:
        return
    for folder in folders:
        base = root / folder
        for relative in dict.fromkeys(("--".join(parts[-2:]), "/".join(parts), parts[-1])):
            yield base / relative / "config.json"
            yield base / f"{relative}.json"


def _local_place(name: str, root: Path) -> Path:
    path = root / name
    return path if path.suffix == ".json" else path / "config.json"


def _hub_cache_places(name: str) -> Iterator[Path]:
    """``models--org--name/snapshots/<revision>/config.json``, the revision being refs/main's."""
    if not _is_repository_id(name):
        return
    folder = _hub_cache() / f"models--{name.replace('/', '--')}"
    try:
        revision = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        revision = "main"
    if revision and "/" not in revision and ".." not in revision:
        yield folder / "snapshots" / revision / "config.json"


def _hub_cache() -> Path:
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return Path(os.environ[variable]).expanduser()
    home = os.environ.get("HF_HOME")
    if home:
        return Path(home).expanduser() / "hub"
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "huggingface" / "hub"


def _is_repository_id(name: str) -> bool:
    org, slash, model = name.partition("/")
    return bool(slash and org and model) and "/" not in model and ".." not in name


def _read(path: Path, name: str) -> ModelSpec:
    from pytest_llmserve.models.config_reader import read_config
    from pytest_llmserve.models.safetensors_header import checkpoint_bytes

    beside = path.with_name("hf_quant_config.json")
    is_model_folder = path.name == "config.json"
    return read_config(
        read_json(path),
        model_id=name,
        source=str(path),
        hf_quant_config=read_json(beside) if is_model_folder and beside.is_file() else None,
        checkpoint_bytes=checkpoint_bytes(path.parent) if is_model_folder else None,
    )


def read_json(path: Path) -> Mapping[str, Any]:
    """A JSON object from a file.

    Raises:
        BadConfig: it is too large, cannot be read, or is no JSON object.
    """
    try:
        size = path.stat().st_size
        if size > _MAX_CONFIG_BYTES:
            raise BadConfig(str(path), "(whole file)", f"{size} bytes", "a config.json")
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise BadConfig(str(path), "(whole file)", str(error), "a readable file") from None
    except RecursionError:
        raise BadConfig(str(path), "(whole file)", "nested too deep", "a config.json") from None
    except ValueError as error:
        raise BadConfig(str(path), "(whole file)", str(error), "JSON") from None
    if not isinstance(content, dict):
        raise BadConfig(str(path), "(whole file)", type(content).__name__, "a JSON object")
    return content


def _download(name: str) -> Path:
    try:
        hub = import_module("huggingface_hub")
        missing = import_module("huggingface_hub.errors").EntryNotFoundError
    except ImportError:
        raise ModelNotFound(
            f"{name}: asking the hub needs the extra: pip install 'pytest-llmserve[hub]'"
        ) from None
    try:
        path = Path(hub.hf_hub_download(name, "config.json"))
    except Exception as error:  # network, permissions, no such repository: one clear error
        raise ModelNotFound(f"{name}: the hub gave no config.json: {error}") from None
    for extra in ("hf_quant_config.json", "model.safetensors.index.json"):
        try:
            hub.hf_hub_download(name, extra)
        except missing:
            continue
        except Exception as error:
            raise ModelNotFound(f"{name}: the hub gave no {extra}: {error}") from None
    return path


def _not_found(name: str, looked: Sequence[str], folders: Sequence[Path]) -> str:
    places = "\n".join(f"  {place}" for place in looked)
    folder = str(folders[0]) if folders else "<models folder>"
    short = name.strip("/").replace("\\", "/").split("/")
    target = f"{folder}/{'--'.join(short[-2:])}/config.json"
    return (
        f"no config.json found for model {name!r}; looked at:\n{places}\n"
        f"commit its config.json as {target}, or add an alias in the policy"
    )
