"""``--llmserve-report json=PATH``."""

import json
from pathlib import Path

import pytest
from plugin_files import FITS, LENGTH_LINE, TOO_LONG, pod, write

from pytest_llmserve.reporting.json_report import JsonReport


def report_of(pytester: pytest.Pytester, *arguments: str) -> JsonReport:
    pytester.runpytest_subprocess(
        "--llmserve", "--llmserve-report", "json=out/report.json", *arguments
    )
    return JsonReport.model_validate_json((pytester.path / "out" / "report.json").read_text())


def test_a_server_in_the_report(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=TOO_LONG)
    report = report_of(pytester, "chat.yaml")
    assert report.schema_version == 1
    assert [f.file for f in report.files] == ["chat.yaml"]
    (server,) = report.servers
    assert server.name == "chat"
    assert server.source is not None
    assert (server.source.file, server.source.line) == ("chat.yaml", 11)
    assert (server.runtime.name, server.runtime.version) == ("vllm", "0.19.1")
    assert not server.runtime.is_assumed
    assert server.model is not None
    assert server.model.id == "meta-llama/Llama-3.1-8B-Instruct"
    assert (server.gpu.id, server.gpu.count) == ("l4", 1)
    length = server.settings["max_model_len"]
    assert (length.value, length.source) == (131072, f"line {LENGTH_LINE}")
    assert length.location is not None
    assert length.location.line == LENGTH_LINE
    assert server.settings["gpu_memory_utilization"].source == "vllm 0.19.1 default"

    ledger, kv = server.ledger, server.kv
    assert ledger is not None
    assert kv is not None
    for end in ("low", "expected", "high"):
        other = {"low": "high", "high": "low"}.get(end, end)
        left = getattr(ledger.budget, end) - sum(
            getattr(row, other) for row in (ledger.weights, ledger.activations, ledger.non_torch)
        )
        assert left == getattr(ledger.kv_available, end)
    # 2 x 32 layers x 8 heads x 128 x 2 B
    assert (kv.bytes_per_token, kv.block_size) == (131072, 16)
    assert kv.need_bytes == kv.request_bytes == 131072 * 131072
    assert kv.num_blocks.expected == ledger.kv_available.expected // kv.bytes_per_block
    assert kv.capacity_tokens.expected == kv.num_blocks.expected * 16
    assert kv.max_concurrency.expected == pytest.approx(kv.capacity_tokens.expected / 131072)
    assert server.roofline is not None
    assert server.roofline.decode_bound == "memory"

    verdicts = {v.name: v for v in server.verdicts}
    fits = verdicts["kv-cache-fits"]
    assert (fits.id, fits.outcome, fits.certainty) == ("LLM102", "failed", "certain")
    assert fits.is_failure
    assert fits.margin_bytes is not None
    assert fits.margin_bytes.expected == ledger.kv_available.expected - kv.need_bytes
    assert fits.headline.startswith("short of ")
    assert fits.message.startswith(f"LLM102 {fits.headline}\n  chat.yaml:{LENGTH_LINE}   chat\n")
    assert fits.fixes[0].change == f"--max-model-len {kv.estimated_max_len.low}"
    assert verdicts["weights-fit"].outcome == "passed"


def test_it_is_the_same_under_xdist(pytester: pytest.Pytester) -> None:
    write(pytester, b_yaml=FITS + "---\n" + pod(name="another"), a_yaml=TOO_LONG)
    arguments = ("a.yaml", "b.yaml")
    alone = report_of(pytester, *arguments)
    assert report_of(pytester, *arguments, "-n", "2") == alone
    assert [s.name for s in alone.servers] == ["chat", "chat", "another"]


def test_unknown_is_null(pytester: pytest.Pytester) -> None:
    write(pytester, chat_yaml=pod(node="restartPolicy: Never"))
    (server,) = report_of(pytester, "chat.yaml").servers
    assert (server.ledger, server.kv, server.roofline) == (None, None, None)
    assert server.gpu.id is None
    assert server.unknown


def test_the_documented_schema_is_the_written_one() -> None:
    text = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    schema = json.dumps(JsonReport.model_json_schema())
    for key in ("files", "servers", "runtime", "ledger", "kv", "roofline", "verdicts", "unknown"):
        assert f"{key}" in text
        assert f'"{key}"' in schema
