"""What operators add to a command line when they start the server, once the machine is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_llmserve.runtimes.vllm.versions import at_least

if TYPE_CHECKING:
    from pytest_llmserve.manifests.launch import Launch
    from pytest_llmserve.runtimes.deployment import Setting
    from pytest_llmserve.runtimes.vllm.args import ParsedArgs


def completed(args: ParsedArgs, launch: Launch, count: Setting[int] | None) -> ParsedArgs:
    """The arguments with what the launch's operator fills in.

    KAITO (presets/workspace of kaito-project/kaito) serves with every GPU of each machine, the
    machines as pipeline stages, and lowers a length that is not stated until it fits.
    """
    if launch.form != "kaito" or not launch.gpu.is_whole_machine:
        return args
    is_open = "max_model_len" not in args.stated and "max_model_len" not in args.unresolved
    if is_open and at_least(args.version, "0.14"):  # earlier versions fit no length by themselves
        args = args.with_value("max_model_len", -1, "KAITO lowers it until it fits")
    if count is None:
        return args
    pods = launch.gpu.pods_per_instance
    for dest, value in (
        ("tensor_parallel_size", count.value // pods),
        ("pipeline_parallel_size", pods),
    ):
        if dest not in args.stated and value > 1:
            args = args.with_value(dest, value, f"KAITO uses every GPU ({count.source})")
    return args
