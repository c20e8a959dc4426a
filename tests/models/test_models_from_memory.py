"""An entry that no copy of the config was at hand for says so wherever it is used."""

from pytest_llmserve.models.lookup import find_model


def test_the_source_says_what_was_read() -> None:
    assert find_model("01-ai/Yi-34B-Chat").source == "catalogue 01-ai/Yi-34B-Chat (from memory)"
    assert not find_model("meta-llama/Llama-3.1-8B-Instruct").source.endswith("(from memory)")
