"""How one server record of a corpus manifest is held against what was read of it."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from pytest_llmserve.hardware.errors import AmbiguousGpu, UnknownGpu
from pytest_llmserve.hardware.names import resolve_gpu
from pytest_llmserve.manifests.model_sources import hub_id
from pytest_llmserve.policy import Facts
from pytest_llmserve.servers.gpus import gpu_count

if TYPE_CHECKING:
    from pytest_llmserve.manifests.launch import Launch, Reading

RUNTIMES = {
    "trtllm": "tensorrt_llm",
    "vllm(huggingfaceserver)": "vllm",
    "vllm (user code)": "vllm",
}
MODEL_FLAGS = ("--model", "--model-path", "--model-id", "--model-dir", "-m", "-hf", "--hf-repo")
OPEN = re.compile(r"\$[({A-Za-z]|<runtime>|\{\{|^<.*>$")
"""What the manifest leaves to run time: any reading of it is as good."""

ALTERNATIVES = ("vllm-recipe", "llama-swap", "aibrix-template", "kubeai-catalog", "ray-serve")
"""Forms whose servers need not run together: the count may be that of one."""
SAME = {
    **dict.fromkeys(("tp", "tp-size"), "tensor-parallel-size"),
    **dict.fromkeys(("pp", "pp-size"), "pipeline-parallel-size"),
    "dp": "data-parallel-size",
    "quantization.weight": "quantization",
    "quantization.kv-cache": "kv-cache-dtype",
}


def flat(text: str) -> str:
    """A value with blanks of JSON and quotes that do not matter dropped."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return " ".join(text.split())


def pairs(words: list[str]) -> Counter[tuple[str, str]]:
    """Arguments as (flag, value): ``--a=b`` and ``--a b`` are the same, ``_`` is ``-``."""
    result: Counter[tuple[str, str]] = Counter()
    name = ""
    values: list[str] = []

    def close() -> None:
        if name or values:
            result[name, flat(" ".join(values))] += 1

    for word in words:
        is_flag = re.match(r"--?[A-Za-z]|(?:runtime|build)\.", word) is not None
        if is_flag or ("=" in word and re.match(r"[A-Za-z_.]+=", word)):
            close()
            key, equals, value = word.partition("=")
            name = key.lstrip("-").replace("_", "-").removeprefix("runtime.").removeprefix("build.")
            name = SAME.get(name, name)
            values = [value] if equals else []
        elif word.startswith("PARAMETER "):
            close()
            key, _, value = word.removeprefix("PARAMETER ").partition(" ")
            name, values = key.replace("_", "-"), [value]
        else:
            values.append(word)
    close()
    return result


def model_of(launch: Launch) -> str | None:
    """The model as the command line, the config file or the environment names it."""
    words = [word.text for word in launch.argv] + [word.text for word in launch.wrapper_argv]
    if launch.argv and not launch.argv[0].text.startswith("-"):
        return launch.argv[0].text
    for index, text in enumerate(words):
        flag, equals, value = text.partition("=")
        if flag.replace("_", "-") in MODEL_FLAGS:
            return value if equals else "".join(words[index + 1 : index + 2])
    for entry in launch.config_entries:
        if entry.key in ("model", "model-path", "model_path"):
            return str(entry.value)
    model_id = launch.env.get("MODEL_ID")
    if model_id is None and launch.runtime == "ollama" and launch.model_sources:
        return launch.model_sources[0].source
    return model_id.text if model_id else None


def same_model(ours: str | None, theirs: object) -> bool:
    """Whether both name one model: ``hf://`` and a preset's spelling do not matter."""
    if theirs is None or (isinstance(theirs, str) and OPEN.search(theirs)):
        return True
    wanted = theirs[0] if isinstance(theirs, list) else str(theirs)
    if ours is None:
        return False
    wanted = wanted.removeprefix("kaito-preset:")
    names = {hub_id(ours).lower(), hub_id(ours).rsplit("/", 1)[-1].lower()}
    return hub_id(wanted).lower() in names or ours == wanted


def our_pairs(launch: Launch) -> Counter[tuple[str, str]]:
    """Our arguments without the model; entries of settings files are arguments too."""
    words = [w.text for w in launch.argv] + [w.text for w in launch.wrapper_argv]
    for entry in () if "--config" in words else launch.config_entries:
        value = entry.value
        if isinstance(value, bool):
            words.append(f"--{entry.key}" if value else f"--no-{entry.key}")
        elif isinstance(value, dict | list):
            words.append(f"--{entry.key}={json.dumps(value)}")
        elif entry.key.startswith("PARAMETER"):
            words.append(f"{entry.key} {value}")
        else:
            words.append(f"--{entry.key}={value}")
    return without_model(words)


def without_model(words: list[str]) -> Counter[tuple[str, str]]:
    if words and not words[0].startswith(("-", "PARAMETER")) and "=" not in words[0]:
        words = words[1:]
    found = pairs(words)
    names = {flag.lstrip("-") for flag in MODEL_FLAGS}
    return Counter({pair: n for pair, n in found.items() if pair[0] not in names})


def argument_differences(launch: Launch, server: dict[str, Any]) -> list[str]:
    """What only one side has; open values of the manifest match any value of the same flag."""
    ours, theirs = our_pairs(launch), without_model([str(a) for a in server.get("args", [])])
    only_theirs, only_ours = theirs - ours, ours - theirs
    for pair in list(only_ours):
        if kept_beside(pair, server):
            del only_ours[pair]
    for name, value in list(only_theirs):
        partner = next((p for p in only_ours if p[0] == name), None)
        is_switch_off = value == "false" and (f"no-{name}", "") in only_ours
        if is_switch_off:
            partner = (f"no-{name}", "")
        is_absent = value == "false" and launch.runtime != "vllm" and partner is None
        if is_absent:  # their switches have no negative: false and absent are one
            del only_theirs[name, value]
        elif partner and (OPEN.search(value) or "***" in partner[1] or is_switch_off):
            del only_theirs[name, value], only_ours[partner]
    for name, value in list(only_theirs):
        if (name, value) == ("", "") or (OPEN.search(value) and not name):
            del only_theirs[name, value]
    if not only_theirs and not only_ours:
        return []
    return [f"only ours {sorted(only_ours)}, only the manifest's {sorted(only_theirs)}"]


def kept_beside(pair: tuple[str, str], server: dict[str, Any]) -> bool:
    """What the manifest keeps in another field: a draft model, the parallel size."""
    if server.get("draft") and pair[1] == server["draft"]:
        return True
    gpu = server.get("gpu")
    return (
        isinstance(gpu, dict)
        and pair[0] == "tensor-parallel-size"
        and pair[1] == str(gpu.get("tp") or gpu.get("tpSize"))
    )


def record_differences(launch: Launch, server: dict[str, Any]) -> list[str]:
    """Differences of one server record, one sentence each."""
    out = []
    named: str = server["engine"]
    engine = RUNTIMES.get(named, named)
    if launch.runtime != engine.lower():
        out.append(f"runtime {launch.runtime}, the manifest says {engine}")
    if not same_model(model_of(launch), server.get("model")):
        out.append(f"model {model_of(launch)!r}, the manifest says {server.get('model')!r}")
    return out + argument_differences(launch, server)


def matched(case: dict[str, Any], reading: Reading) -> list[tuple[Launch | None, dict[str, Any]]]:
    """Each expected record with the launch that differs least from it."""
    servers = case["servers"]
    offers = sorted(
        (cost(launch, server), i, j)
        for i, launch in enumerate(reading.launches)
        for j, server in enumerate(servers)
    )
    taken: dict[int, int] = {}
    for _, i, j in offers:
        if i not in taken.values() and j not in taken:
            taken[j] = i
    return [
        (reading.launches[taken[j]] if j in taken else None, server)
        for j, server in enumerate(servers)
    ]


def cost(launch: Launch, server: dict[str, Any]) -> tuple[int, int]:
    theirs = without_model([str(a) for a in server.get("args", [])])
    ours = our_pairs(launch)
    difference = (theirs - ours).total() + (ours - theirs).total()
    is_other = not same_model(model_of(launch), server.get("model"))
    role = str(server.get("role") or "").lower()
    is_named = bool(role) and role in launch.name.lower()
    return (
        difference
        + 3 * is_other
        + 5 * (launch.runtime != RUNTIMES.get(server["engine"], server["engine"])),
        not is_named,
    )


def gpu_differences(case: dict[str, Any], launches: list[Launch]) -> list[str]:
    """GPU count of one running copy of the file, and the kind that fields state."""
    out = []
    counts = [gpu_count(launch, Facts()) for launch in launches if launch.is_deployed]
    expected = case.get("gpus_per_instance")
    total = sum(c.value for c in counts if c is not None)
    replicas = sum(
        c.value * (launch.replicas or 1)
        for c, launch in zip(counts, [x for x in launches if x.is_deployed], strict=True)
        if c is not None
    )
    how = str(case.get("gpu_how"))
    is_derived = re.search(r"tp|tensor|computed|_gpu=|follows|comment|-ts|verified|base", how, re.I)
    is_missing = any(c is None for c in counts) or not counts
    accepted = {total, replicas}
    if case["form"] in ALTERNATIVES or re.search("replicas|each", how) or not counts:
        known = [gpu_count(launch, Facts()) for launch in launches]
        accepted |= {c.value for c in known if c is not None}
    is_open = is_missing and is_derived
    if expected is not None and expected not in accepted and not is_open:
        out.append(
            f"{total} GPUs ({[c and c.value for c in counts]}), the manifest says {expected}: {how}"
        )
    return out + kind_differences(case, launches)


def kind_differences(case: dict[str, Any], launches: list[Launch]) -> list[str]:
    kind, how = case.get("gpu_kind"), str(case.get("gpu_how"))
    stated = {
        text for launch in launches for label in launch.gpu.labels for text in label.alternatives
    }
    resources = " ".join(launch.gpu.resource or "" for launch in launches)
    if kind is None or kind in ("various", "see hardware map"):
        return []
    if re.search(r"path|file name|comment|folder|model name", how) and not stated:
        return []  # only people can see it there
    shown = {text: canonical(text, launch_key(launches, text)) for text in stated}
    for wanted in re.split(r"\||/|,| and ", str(kind)):
        word = wanted.strip().split(" ")[0].replace("(unknown)", "")
        word = "gaudi" if "Gaudi" in wanted else word
        known = " ".join([*shown.values(), *shown, resources]).lower().replace("-", " ")
        vendor = {
            "AMD": "amd",
            "NVIDIA": "nvidia",
            "Ascend": "ascend",
            "Intel": "intel",
            "CPU": "",
            "MIG": "mig",
        }
        needle = vendor.get(word, word.lower())
        if (
            needle.replace("-", " ") not in known
            and needle.replace("-", " ").split(" ")[0] not in known
        ):
            return [f"GPU {sorted(stated) or resources or None}, the manifest says {kind} ({how})"]
    return []


def launch_key(launches: list[Launch], text: str) -> str | None:
    for launch in launches:
        for label in launch.gpu.labels:
            if text in label.alternatives:
                return label.key
    return None


def canonical(text: str, key: str | None) -> str:
    """The device that our table takes a label for."""
    try:
        return resolve_gpu(text, key=key).id
    except AmbiguousGpu as error:
        return " ".join(error.candidates)
    except UnknownGpu:
        return text
