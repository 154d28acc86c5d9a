"""The golden set: what every change of the core is measured by, as one file that this renews and compares.

    python benchmarks/golden.py --quick --processes 2 --out new.json
    python benchmarks/golden.py --compare old.json new.json

Parts: problems with known answers from all their listed starts, the outside families with seeds of your choice, and
examples of the documentation and of machine learning. A row says what came of one run: status, value, whether y is
exact, what that is worth (right, local, missed, honest, wrong, elsewhere, crash; or done, if no truth is known),
evaluations and seconds without compilation. Seeds are reported: a change is tried on some, and counted on others.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocc import Result, solve
from blocc.problems.textbook import known_problem, known_problems
from golden_examples import EXAMPLES
from known_answers import claims_elsewhere, is_solved
from outside import draw
from outside_case import forget
from outside_families import FAMILIES
from outside_truth import judge

PARTS = ("known", "outside", "examples")
SOLVED = ("right", "local", "done")
_DIGITS = 1e-6  #: difference of values, relative to their size, that a comparison tells
_QUICK = 6  #: of so many families and known problems, --quick takes one


class Job(NamedTuple):
    """One problem: from all its starts, or by seed and index."""

    part: str
    name: str
    seed: int = 0
    index: int = 0


def jobs(parts: Iterable[str], seeds: Sequence[int], per_family: int, quick: bool) -> list[Job]:
    """All problems of some parts."""
    each = _QUICK if quick else 1
    found: list[Job] = []
    if "known" in parts:
        found += [Job("known", known.name) for known in known_problems()][::each]
    if "outside" in parts:
        found += [
            Job("outside", name, seed, index)
            for name in list(FAMILIES)[::each]
            for seed in seeds
            for index in range(per_family)
        ]
    if "examples" in parts:
        found += [Job("examples", name) for name in EXAMPLES if not (quick and name in ("kinks_300", "cleaning"))]
    return found


def run(job: Job, limit: float) -> dict[str, dict[str, Any]]:
    """What came of one problem, by the name of the run."""
    rows: dict[str, dict[str, Any]] = {}
    if job.part == "outside":
        forget()  # what families share, and what it keeps in memory
        case = draw(job.name, job.seed, job.index)
        key = f"outside {job.name} {job.seed} {job.index}"
        options = {"time_limit": limit, **case.options}
        rows[key] = _row(lambda: solve(case.problem, case.user_start, progress=False, **options), None)
        found = rows[key].pop("result")
        verdict = "crash" if found is None else judge(case, found).kind
        rows[key] |= {"kind": verdict, "well_posed": case.well_posed}
        return rows
    if job.part == "known":
        known = known_problem(job.name)
        for index, start in enumerate(known.starts):
            row = _row(lambda start=start: solve(known.problem, start, progress=False, time_limit=limit), known)  # type: ignore[misc]
            row.pop("result")
            rows[f"known {job.name} {index}"] = row
        return rows
    example = EXAMPLES[job.name]()
    for index, start in enumerate(example.starts):
        row = _row(lambda start=start: solve(example.problem, start, progress=False, time_limit=limit), None)  # type: ignore[misc]
        row.pop("result")
        if row["kind"] == "done" and example.value is not None:
            off = (row["value"] - example.value) / (1.0 + abs(example.value))
            row |= {"kind": "right" if abs(off) <= _DIGITS else "elsewhere", "off": off}
        rows[f"examples {job.name} {index}"] = row
    return rows


def _row(make: Any, known: Any) -> dict[str, Any]:
    """One run as plain numbers, and its result."""
    begun = time.perf_counter()
    try:
        result: Result = make()
    except Exception as error:  # a crash is a finding
        words = f"{type(error).__name__}: {error}"
        return {"kind": "crash", "status": words, "result": None, "evaluations": 0, "seconds": 0.0, "value": np.inf}
    kind = "done" if result.success else "missed"
    if known is not None:
        wrong = "elsewhere" if claims_elsewhere(known, result) else "missed"
        kind = "right" if is_solved(known, result) else wrong
    return {
        "kind": kind,
        "status": result.status.value,
        "value": result.upper_value,
        "exact": result.certificate.exact,
        "stationarity_x": result.certificate.stationarity_x,
        "evaluations": result.counts["evaluations"],
        "seconds": time.perf_counter() - begun - result.seconds["compile"],
        "compile": result.seconds["compile"],
        "message": result.message,
        "result": result,
    }


def summary(rows: dict[str, dict[str, Any]]) -> str:
    """One line for each part."""
    lines = []
    for part in PARTS:
        found = [row for name, row in rows.items() if name.startswith(part + " ")]
        if not found:
            continue
        kinds = Counter(row["kind"] for row in found)
        posed = [row for row in found if row.get("well_posed", True) and row["kind"] != "honest"]
        solved = sum(row["kind"] in SOLVED for row in posed)
        spent = [row["evaluations"] for row in found]
        seconds = [row["seconds"] for row in found]
        lines.append(
            f"{part:<9} {len(found):5d} runs  {solved}/{len(posed)} solved  "
            + "  ".join(f"{kind} {count}" for kind, count in kinds.most_common())
            + f"  evaluations {sum(spent)} (median {np.median(spent):g})  seconds {sum(seconds):.1f} "
            f"(median {np.median(seconds):.3f})"
        )
    return "\n".join(lines)


def compare(old: dict[str, dict[str, Any]], new: dict[str, dict[str, Any]]) -> str:
    """Both summaries over what both have, and every run that fares differently."""
    both = [name for name in old if name in new]
    lines = ["old", summary({name: old[name] for name in both}), "new", summary({name: new[name] for name in both})]
    for name in both:
        before, after = old[name], new[name]
        size = 1.0 + min(abs(before["value"]), abs(after["value"]))
        gain = (before["value"] - after["value"]) / size if np.isfinite(size) else 0.0
        same = (before["kind"] in SOLVED) == (after["kind"] in SOLVED) and before["kind"] != "wrong" != after["kind"]
        if not same or before["kind"] != after["kind"] or abs(gain) > _DIGITS:
            mark = "!" if after["kind"] not in SOLVED and before["kind"] in SOLVED else " "
            lines.append(
                f"{mark} {name:<48} {before['kind']:>9} {before['value']:<14.8g} {before['evaluations']:5d}  ->  "
                f"{after['kind']:>9} {after['value']:<14.8g} {after['evaluations']:5d}"
            )
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--names", nargs="+", help="only problems whose name contains one of these")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], help="of the outside families")
    parser.add_argument("--per-family", type=int, default=1, help="problems of each family and seed")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds for one run")
    parser.add_argument("--quick", action="store_true", help="one problem of six")
    parser.add_argument("--out", type=Path, help="the file to write")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"), help="two such files")
    given = parser.parse_args(words)
    if given.compare:
        print(compare(*(json.loads(path.read_text(encoding="utf-8")) for path in given.compare)))
        return 0
    wanted = jobs(given.parts, given.seeds, given.per_family, given.quick)
    if given.names:
        wanted = [job for job in wanted if any(name in job.name for name in given.names)]
    rows: dict[str, dict[str, Any]] = {}
    with ProcessPoolExecutor(given.processes, multiprocessing.get_context("spawn")) as pool:
        for found in pool.map(run, wanted, [given.limit] * len(wanted)):
            rows |= found
            if given.out:
                given.out.write_text(json.dumps(rows, indent=1), encoding="utf-8")
            if given.names:
                for name, row in found.items():
                    print(name, {key: value for key, value in row.items() if key != "message"}, row["message"])
    print(summary(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
