"""``--llmserve-report plots=DIR``."""

import sys

import pytest

SERVE = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192\n"
POLICY = 'gpu = "h100-sxm-80gb"\ngpu_count = 1\nvllm_version = "0.19.1"\n'


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    (pytester.path / "serve.sh").write_text(SERVE)
    (pytester.path / "llmserve.toml").write_text(POLICY)
    return pytester


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_pictures_are_written_once(project: pytest.Pytester, workers: tuple[str, ...]) -> None:
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    ran = project.runpytest_subprocess(
        "--llmserve", "serve.sh", "--llmserve-report", "plots=pics", *workers
    )
    ran.stdout.fnmatch_lines(["report: pics"])
    assert ran.stdout.str().count("report: pics") == 1
    names = sorted(path.name for path in (project.path / "pics").iterdir())
    assert names == ["capacity-serve-h100-sxm-80gb.png", "roofline-1.png", "vram-1.png"]


def test_without_matplotlib_it_says_what_to_install(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("pytest_llmserve.plots.write.find_spec", lambda name: None)
    ran = project.runpytest_inprocess("--llmserve", "serve.sh", "--llmserve-report", "plots=pics")
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stderr.fnmatch_lines(
        [
            "*--llmserve-report plots=pics: pictures need matplotlib: pip install *?plot?*",
        ]
    )


def test_a_folder_that_cannot_be_made_is_told(project: pytest.Pytester) -> None:
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    (project.path / "taken").write_text("")
    ran = project.runpytest_subprocess(
        "--llmserve", "serve.sh", "--llmserve-report", "plots=taken/pics"
    )
    assert ran.ret != 0
    ran.stdout.fnmatch_lines(["report: taken/pics cannot be written: Not a directory"])


def test_pictures_are_not_loaded_unasked(project: pytest.Pytester) -> None:
    (project.path / "conftest.py").write_text(
        "import sys\n"
        "def pytest_unconfigure(config):\n"
        "    print('LOADED', 'matplotlib' in sys.modules, 'pytest_llmserve.plots' in sys.modules)\n"
    )
    ran = project.runpytest_subprocess("--llmserve", "serve.sh", "-s")
    ran.stdout.fnmatch_lines(["*LOADED False False"])
