"""How far our plans of vLLM servers are from what vLLM computed and real servers printed.

``python benchmarks/accuracy.py --corpus DIR [-v] [--json FILE]``; every part of DIR may be absent.
One row a target: the share or error measured, over how many, the target, and whether it is met.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from observed_servers import ObservedReport, compare_observed
from oracle_points import compare_oracle
from scoreboard import Row, table
from vllm_corpus import Corpus

if TYPE_CHECKING:
    from collections import Counter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--json", type=Path, help="write every figure and every miss here")
    parser.add_argument("-v", "--verbose", action="store_true", help="list every disagreement")
    options = parser.parse_args()
    if not options.corpus.is_dir():
        parser.error(f"{options.corpus} is not a folder")
    corpus = Corpus(options.corpus)
    oracle, observed = compare_oracle(corpus), compare_observed(corpus)
    rows = [*oracle.rows(), *observed.rows()]
    print(table(rows))
    print_counts("oracle points left out, faults of the stand-in", oracle.left_out)
    print_counts("oracle points that cannot be used", oracle.unusable)
    print_counts("reports left out, faults of the record", observed.faults)
    print_counts("reports that cannot be used", observed.skipped)
    print_terms(observed)
    if options.verbose:
        for row in rows:
            print_row(row)
    if options.json:
        found = {
            "rows": [row.as_json() for row in rows],
            "oracle": {
                "points": oracle.points,
                "left_out": dict(oracle.left_out),
                "unusable": dict(oracle.unusable),
            },
            "observed": observed.as_json(),
        }
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


def print_counts(title: str, counts: Counter[str]) -> None:
    if counts:
        print(f"\n{title}: {counts.total()}")
        for reason, count in counts.most_common():
            print(f"  {count:4}  {reason}")


def print_terms(report: ObservedReport) -> None:
    if not report.terms:
        return
    head = ("rows", "|error|", "error", "inside", "width")
    print(f"\n{'terms of the budget, GiB, medians':34}" + "".join(f"{h:>9}" for h in head))
    for name, term in report.terms.items():
        row = term.as_json()
        print(
            f"  {name:32}{row['rows']:9}{row['median_abs_error_gib']:9.2f}"
            f"{row['median_error_gib']:+9.2f}{row['share_inside']:9.0%}"
            f"{row['median_width_gib']:9.2f}"
        )


def print_row(row: Row) -> None:
    if row.misses or row.notes:
        print(f"\n{row.label.strip()}")
    for line in row.misses:
        print(f"  x {line}")
    for line in row.notes:
        print(f"    {line}")


if __name__ == "__main__":
    main()
