"""Where a model is looked for, in which order, and what is said when it is nowhere."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_llmserve.models.errors import BadConfig, ModelNotFound, UnsupportedModel
from pytest_llmserve.models.lookup import find_model

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}
BUNDLED = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.fixture(autouse=True)
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    return cache


def put(path: Path, **changes: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**CONFIG, **changes}), encoding="utf-8")
    return path


def put_in_hub(cache: Path, name: str, revision: str, *, ref: str | None, **changes: Any) -> None:
    folder = cache / f"models--{name.replace('/', '--')}"
    put(folder / "snapshots" / revision / "config.json", **changes)
    if ref is not None:
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text(ref)


@pytest.mark.parametrize(
    "place",
    [
        "models/org--name/config.json",
        "models/org/name/config.json",
        "models/name/config.json",
        "models/org--name.json",
        "models/name.json",
    ],
)
def test_spellings_in_a_models_folder(tmp_path: Path, place: str) -> None:
    path = put(tmp_path / place)
    spec = find_model("org/name", models_folders=[Path("models")], base_dir=tmp_path)
    assert spec.source == str(path)
    assert spec.id == "org/name"


def test_the_models_folder_comes_first_and_the_catalogue_last(
    tmp_path: Path, hub_cache: Path
) -> None:
    folders = [tmp_path / "models"]
    assert find_model(BUNDLED, models_folders=folders, base_dir=tmp_path).hidden_size == 4096
    put_in_hub(hub_cache, BUNDLED, "abc", ref="abc", hidden_size=16)
    assert find_model(BUNDLED, models_folders=folders, base_dir=tmp_path).hidden_size == 16
    put(tmp_path / BUNDLED / "config.json", hidden_size=32)
    assert find_model(BUNDLED, models_folders=folders, base_dir=tmp_path).hidden_size == 32
    put(tmp_path / "models" / BUNDLED.replace("/", "--") / "config.json", hidden_size=64)
    assert find_model(BUNDLED, models_folders=folders, base_dir=tmp_path).hidden_size == 64


def test_an_absolute_path(tmp_path: Path) -> None:
    put(tmp_path / "weights" / "config.json")
    assert find_model(str(tmp_path / "weights")).hidden_size == 64


def test_a_path_is_looked_up_by_its_name_in_the_models_folder(tmp_path: Path) -> None:
    put(tmp_path / "models" / "llama-tiny" / "config.json")
    spec = find_model("/mnt/models/llama-tiny", models_folders=[tmp_path / "models"])
    assert spec.hidden_size == 64


def test_the_hub_cache_follows_refs_main(hub_cache: Path, tmp_path: Path) -> None:
    put_in_hub(hub_cache, "org/name", "new", ref="new", hidden_size=32)
    put(hub_cache / "models--org--name" / "snapshots" / "old" / "config.json")
    assert find_model("org/name", base_dir=tmp_path).hidden_size == 32


def test_the_hub_cache_below_hf_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    put_in_hub(tmp_path / "home" / "hub", "org/name", "abc", ref="abc")
    assert find_model("org/name", base_dir=tmp_path).hidden_size == 64


def test_a_ref_does_not_lead_out_of_the_cache(hub_cache: Path, tmp_path: Path) -> None:
    put_in_hub(hub_cache, "org/name", "abc", ref="../../../outside")
    put(hub_cache.parent / "outside" / "config.json")
    with pytest.raises(ModelNotFound):
        find_model("org/name", base_dir=tmp_path)


def test_aliases_of_the_policy(tmp_path: Path) -> None:
    spec = find_model("/models/llama", aliases={"/models/llama": BUNDLED}, base_dir=tmp_path)
    assert spec.source.startswith(f"catalogue {BUNDLED}")


def test_a_hub_url_is_its_repository(tmp_path: Path) -> None:
    assert find_model(f"hf://{BUNDLED}", base_dir=tmp_path).id == BUNDLED


def test_nowhere_names_the_places_and_what_to_do(tmp_path: Path, hub_cache: Path) -> None:
    with pytest.raises(ModelNotFound) as error:
        find_model("org/name", models_folders=[Path("models")], base_dir=tmp_path)
    assert str(error.value) == (
        "no config.json found for model 'org/name'; looked at:\n"
        f"  {tmp_path}/models/org--name/config.json\n"
        f"  {tmp_path}/models/org--name.json\n"
        f"  {tmp_path}/models/org/name/config.json\n"
        f"  {tmp_path}/models/org/name.json\n"
        f"  {tmp_path}/models/name/config.json\n"
        f"  {tmp_path}/models/name.json\n"
        f"  {tmp_path}/org/name/config.json\n"
        f"  {hub_cache}/models--org--name/snapshots/main/config.json\n"
        "  the bundled catalogue\n"
        "commit its config.json as models/org--name/config.json, or add an alias in the policy"
    )


@pytest.mark.parametrize("ref", ["", "  ", "a\0b", "../../etc", "x" * 5000, "a/../b", "org/na\nme"])
def test_odd_names_are_not_found(ref: str, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        find_model(ref, models_folders=[tmp_path / "models"], base_dir=tmp_path)


def test_a_name_does_not_lead_out_of_a_models_folder(tmp_path: Path) -> None:
    put(tmp_path / "secret" / "config.json")
    (tmp_path / "a" / "models").mkdir(parents=True)
    with pytest.raises(ModelNotFound):
        find_model(
            "../../secret",
            models_folders=[tmp_path / "a" / "models"],
            base_dir=tmp_path / "a" / "b",
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected JSON"),
        ("[1]", "list', expected a JSON object"),
        ("\udcff", "expected JSON"),
        ("[" * 100_000, "expected"),
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "m" / "config.json"
    path.parent.mkdir()
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadConfig, match=message) as error:
        find_model("m", base_dir=tmp_path)
    assert str(error.value).startswith(str(path))


def test_infinity_in_a_config_is_read(tmp_path: Path) -> None:
    # Nemotron-H-56B: "time_step_limit": [0.0, Infinity]
    path = put(tmp_path / "m" / "config.json")
    path.write_text(path.read_text()[:-1] + ', "time_step_limit": [0.0, Infinity]}')
    assert find_model("m", base_dir=tmp_path).hidden_size == 64


def test_an_unknown_architecture_names_its_file(tmp_path: Path) -> None:
    path = put(tmp_path / "m" / "config.json", architectures=["NewForCausalLM"])
    with pytest.raises(UnsupportedModel) as error:
        find_model("m", base_dir=tmp_path)
    assert str(error.value) == (
        f"{path}: architecture 'NewForCausalLM' (model_type 'llama') is not understood"
    )


def test_hf_quant_config_beside_is_read(tmp_path: Path) -> None:
    path = put(tmp_path / "m" / "config.json")
    path.with_name("hf_quant_config.json").write_text(
        '{"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}}'
    )
    spec = find_model("m", base_dir=tmp_path)
    assert spec.quantization is not None
    assert spec.quantization.scheme == "nvfp4"


def test_checkpoint_bytes_from_the_index(tmp_path: Path) -> None:
    path = put(tmp_path / "m" / "config.json")
    assert find_model("m", base_dir=tmp_path).checkpoint_bytes is None
    path.with_name("model.safetensors.index.json").write_text('{"metadata": {"total_size": 1234}}')
    assert find_model("m", base_dir=tmp_path).checkpoint_bytes == 1234


def test_the_network_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelNotFound, match=r"pip install 'pytest-llmserve\[hub\]'"):
        find_model("org/name", base_dir=tmp_path, allow_network=True)


class FakeHub:
    """huggingface_hub with one repository."""

    def __init__(self, folder: Path, missing: type[Exception]) -> None:
        self.folder = folder
        self.missing = missing
        self.asked: list[tuple[str, str]] = []

    def hf_hub_download(self, repo_id: str, filename: str) -> str:
        self.asked.append((repo_id, filename))
        path = self.folder / filename
        if repo_id != "org/name" or not path.exists():
            raise self.missing("404")
        return str(path)


def test_the_network_is_asked_last_and_only_where_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class MissingError(Exception):
        pass

    put(tmp_path / "remote" / "config.json")
    hub = FakeHub(tmp_path / "remote", MissingError)
    errors = type(sys)("huggingface_hub.errors")
    errors.EntryNotFoundError = MissingError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)
    with pytest.raises(ModelNotFound):
        find_model("org/name", base_dir=tmp_path)
    assert hub.asked == []
    assert find_model("org/name", base_dir=tmp_path, allow_network=True).hidden_size == 64
    assert hub.asked[0] == ("org/name", "config.json")
    assert find_model(BUNDLED, base_dir=tmp_path, allow_network=True).hidden_size == 4096
    assert len(hub.asked) == 3
    with pytest.raises(ModelNotFound, match=r"org/other: the hub gave no config\.json: 404"):
        find_model("org/other", base_dir=tmp_path, allow_network=True)
