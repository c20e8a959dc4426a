"""How far our plans of vLLM servers are from what vLLM computed and real servers printed.

``python benchmarks/accuracy.py --corpus DIR [--json FILE]``; every part of DIR may be absent.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from observed_servers import ObservedReport, compare_observed
from oracle_points import OracleReport, Score, compare_oracle
from vllm_corpus import Corpus

if TYPE_CHECKING:
    from collections import Counter

FIGURES = (
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "weights",
    "groups",
    "num_blocks",
    "max_concurrency",
    "capacity_tokens",
    "fits",
    "refusal",
    "plan",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--json", type=Path, help="write every figure and every miss here")
    parser.add_argument("--detail", action="store_true", help="print each observed row too")
    options = parser.parse_args()
    if not options.corpus.is_dir():
        parser.error(f"{options.corpus} is not a folder")
    corpus = Corpus(options.corpus)
    oracle, observed = compare_oracle(corpus), compare_observed(corpus)
    print_oracle(oracle)
    print_observed(observed, has_detail=options.detail)
    if options.json:
        found: dict[str, Any] = {"oracle": oracle.as_json(), "observed": observed.as_json()}
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


def print_oracle(report: OracleReport) -> None:
    print(f"\nvLLM's own computations: {report.points} accepted points")
    if not report.points:
        return
    print(f"  {'':24}{'equal':>7}{'<0.1 %':>8}{'other':>7}{'share':>9}   by version, equal/total")
    totals = {name: Score() for name in FIGURES}
    for scores in report.scores.values():
        for name, score in scores.items():
            totals[name].equal += score.equal
            totals[name].near += score.near
            totals[name].different += score.different
    for name, total in totals.items():
        if not total.total:
            continue
        share = (total.equal + total.near) / total.total
        by_version = " ".join(
            f"{version}:{scores[name].equal + scores[name].near}/{scores[name].total}"
            for version, scores in sorted(report.scores.items())
            if name in scores and scores[name].different
        )
        print(
            f"  {name:24}{total.equal:7}{total.near:8}{len(total.different):7}{share:9.2%}"
            f"   {by_version}"
        )
    for title, counts in (("left out", report.left_out), ("not understood", report.not_understood)):
        print_counts(title, counts)
    for name, total in totals.items():
        for line in total.different[:12]:
            print(f"  {name}: {line[:190]}")


def print_counts(title: str, counts: Counter[str]) -> None:
    if counts:
        print(f"  {title}: {sum(counts.values())} points")
        for reason, count in counts.most_common(40):
            print(f"    {count:4}  {reason}")


def print_observed(report: ObservedReport, *, has_detail: bool) -> None:
    print(f"\nStart-up logs of real servers: {report.records} records")
    if not report.records:
        return
    head = ("rows", "|error|", "error", "inside", "width")
    print(f"  {'GiB, medians':28}" + "".join(f"{name:>9}" for name in head))
    for name, term in report.terms.items():
        row = term.as_json()
        print(
            f"  {name:28}{row['rows']:9}{row['median_abs_error_gib']:9.2f}"
            f"{row['median_error_gib']:+9.2f}{row['share_inside']:9.0%}"
            f"{row['median_width_gib']:9.2f}"
        )
        for line in term.rows if has_detail else []:
            print(f"      {line}")
    for name, share in report.shares.items():
        row = share.as_json()
        print(
            f"  {name:34} {row['rows']:3} rows, median off by {row['median_abs_error']:.2%}, "
            f"{row['within_1_percent']:.0%} within 1 %"
        )
        for line in share.rows if has_detail else []:
            print(f"      {line}")
    for verdict, count in report.verdicts.most_common():
        print(f"  {count:4}  {verdict}")
    for line in report.verdict_rows if has_detail else []:
        print(f"      {line}")
    print_counts("not planned", report.skipped)


if __name__ == "__main__":
    main()
