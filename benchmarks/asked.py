"""What the descent on pieces was to reach, row by row: measured, and put into the table of docs/measurements.md.

python benchmarks/asked.py                      # every row, some twenty minutes on one idle core
python benchmarks/asked.py readme kinks         # rows whose name begins so
python benchmarks/asked.py known --write        # and into the page
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import golden
import source_counts
from blocc import BilevelProblem, Box, Reals, solve
from blocc.problems.textbook import known_problems

PAGE = Path(__file__).parents[1] / "docs" / "measurements.md"
HEADING = "## What was asked of the descent on pieces"
LIMIT = 600.0  #: seconds for one run: counts are what is asked
SEED = 61803  #: of the random problems, used for nothing else


class Row(NamedTuple):
    """One line of the table: what is measured, what was asked, and who measures it."""

    what: str
    asked: str
    measure: Callable[[], str]


def _runs(part: str, name: str) -> list[dict[str, Any]]:
    return list(golden.run(golden.Job(part, name), LIMIT).values())


def _spent(rows: list[dict[str, Any]]) -> str:
    taken = [row["evaluations"] for row in rows]
    return str(taken[0]) if len(taken) == 1 else f"{min(taken)} to {max(taken)}"


def example(name: str) -> str:
    """Evaluations, and how far from the known value the runs end."""
    before = _processor_seconds()
    rows = _runs("examples", name)
    spent = _processor_seconds() - before
    solved = sum(row["kind"] in golden.SOLVED for row in rows)
    off = max((abs(row["off"]) for row in rows if "off" in row), default=None)
    words = f"{_spent(rows)} evaluations, {spent:.1f} s of CPU time"
    words += "" if off is None else f", within {max(off, 1e-16):.0e}"
    return words if len(rows) == 1 else f"{solved} of {len(rows)} converged; {words}"


def known() -> str:
    """All starts of all problems with known answers."""
    rows = [row | {"of": problem.name} for problem in known_problems() for row in _runs("known", problem.name)]
    right = sum(row["kind"] == "right" for row in rows)
    missed = {row["of"] for row in rows if row["kind"] != "right"}
    taken = [row["evaluations"] for row in rows]
    words = f"{right} of {len(rows)}; {sum(taken):,} evaluations, median {np.median(taken):g}"
    return words + (f"; not {', '.join(sorted(missed))}" if missed else "")


def _outside(names: list[str], each: int, limit: float) -> list[dict[str, Any]]:
    jobs = [golden.Job("outside", name, SEED, index) for name in names for index in range(each)]
    return [row for job in jobs for row in golden.run(job, limit).values()]


def outside() -> str:
    """One problem of each family."""
    rows = _outside(list(golden.FAMILIES), 1, 60.0)
    posed = [row for row in rows if row["well_posed"] and row["kind"] != "honest"]
    kinds = Counter(row["kind"] for row in rows)
    solved = sum(row["kind"] in golden.SOLVED for row in posed)
    return (
        f"{solved} of {len(posed)} of the well-posed of {len(rows)} problems, {kinds['wrong']} wrong, {kinds['crash']} "
        f"crashes; median {np.median([row['evaluations'] for row in rows]):g} evaluations"
    )


def leader_kinks() -> str:
    """The leader's constraint at a kink of the response, two variables."""
    rows = _outside(["leader_kink_2d"], 29, 60.0)
    return f"{sum(row['kind'] in golden.SOLVED for row in rows)} of {len(rows)}; {_spent(rows)} evaluations"


def logistic() -> str:
    """Logistic regression of 5,000 weights; the leader bounds their norm in a coupled row and tunes their ridge."""
    rng = np.random.default_rng(0)
    train, held_out = rng.standard_normal((2, 60, 5000)) / 5.0
    truth = np.where(np.arange(5000) < 20, 1.0, 0.0)
    labels, checks = np.sign(train @ truth), np.sign(held_out @ truth)
    problem = BilevelProblem(
        upper=lambda x, y: jnp.mean(jnp.logaddexp(0.0, -checks * (held_out @ y))),
        lower=lambda x, y: jnp.mean(jnp.logaddexp(0.0, -labels * (train @ y))) + 0.01 * jnp.exp(x[0]) * y @ y,
        inequality=lambda x, y: y @ y - jnp.exp(x[1]),
        x_set=Box(-3.0, 3.0, shape=2),
        y_set=Reals(5000),
    )
    before = _processor_seconds()
    result = solve(problem, [0.0, 0.0], progress=False, time_limit=LIMIT)
    spent = _processor_seconds() - before
    return f"{result.status.value}, {result.counts['evaluations']} evaluations, {spent:.1f} s of CPU time"


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def first_answer() -> str:
    """Importing, compiling and solving the README's problem in a fresh process."""
    import first_answer

    found = first_answer.measure({"peer": ((first_answer.FLOOR,), None), "blocc": ((first_answer.ANSWER,), None)}, 3)
    peer, own = found["peer"], found["blocc"]
    seconds = own["imported"] + own["solved"]
    return f"{seconds:.2f} s ({own['cpu']:.2f} s of CPU time; JAX alone {peer['cpu']:.2f})"


def cvxpy_examples() -> str:
    """Small followers in CVXPY."""
    import cvxpy_examples

    found = [cvxpy_examples.evaluated(make(), LIMIT) for make in cvxpy_examples.EXAMPLES.values()]
    taken = [one.evaluations for one in found]
    return f"{min(taken)} to {max(taken)} evaluations, median {np.median(taken):g}"


def four_prices() -> str:
    """A quadratic follower of 10,000 variables in CVXPY, and four prices; beside what values alone find."""
    import cvxpy_examples

    made = cvxpy_examples.four_prices(10_000)
    found = cvxpy_examples.evaluated(made, 600.0)
    alone = cvxpy_examples.four_prices_by_values(10_000, made[1], scan=40)
    return f"{found.value:.8f} (by values alone {alone:.8f}), {found.status}, {found.evaluations} evaluations"


def numbers() -> str:
    """Uncommon numbers of the numerics."""
    return f"{source_counts.per_thousand():.1f}"


def way() -> str:
    """Files of the package in which something runs while the README's problem is solved."""
    found = source_counts.way_of_solve()
    ran, loaded = (source_counts.counted(found[kind]) for kind in ("ran", "loaded"))
    return f"{ran.files} files, {ran.lines:,} lines run; {loaded.files} files, {loaded.lines:,} lines loaded"


ROWS = {
    "readme": Row("README's example", "at most 15 evaluations", lambda: example("readme")),
    "harbour": Row("the tutorial's harbour", "at most 30 evaluations, 1e-9", lambda: example("harbour")),
    "kinks": Row(
        "150 variables, every optimum at a kink", "at most 60 evaluations, 3 s, 1e-9", lambda: example("kinks_150")
    ),
    "cleaning": Row("hyper-cleaning of 500 weights", "4 of 4, at most 60 evaluations", lambda: example("cleaning")),
    "meta": Row("meta-learning, x a pytree", "at most 60 evaluations", lambda: example("meta_learning")),
    "known": Row("problems with known answers, all starts", "202 of 202, a fifth of the evaluations", known),
    "outside": Row("outside families, an unseen seed", "99.7 % of the well-posed, 0 wrong", outside),
    "leader": Row("leader's constraint at a kink, two variables", "29 of 29", leader_kinks),
    "logistic": Row("logistic regression of 5,000 weights, a coupled row", "5 s of CPU time, compiled", logistic),
    "first": Row("first answer: importing and solving, cold", "not slower than 0.85 s", first_answer),
    "cvxpy": Row("twelve small followers in CVXPY", "at most 150 evaluations", cvxpy_examples),
    "prices": Row("CVXPY, 10,000 variables, 4 prices", "the optimum to 1e-6 within 60 evaluations", four_prices),
    "numbers": Row("uncommon numbers per 1,000 lines of numerics", "12", numbers),
    "way": Row("way of `solve`: files and lines to read", "18 files, 2,500 lines", way),
}


def line_of(name: str, measured: str) -> str:
    row = ROWS[name]
    return f"| {row.what} | {row.asked} | {measured} | `{name}` |"


def written(page: str, measured: dict[str, str]) -> str:
    """The page with these rows renewed."""
    lines = page.splitlines()
    for name, found in measured.items():
        (at,) = (i for i, line in enumerate(lines) if line.endswith(f"| `{name}` |"))
        lines[at] = line_of(name, found)
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help="names of rows begin so; all by default")
    parser.add_argument("--write", action="store_true", help="renew these rows of docs/measurements.md")
    given = parser.parse_args()
    chosen = [name for name in ROWS if not given.rows or any(name.startswith(start) for start in given.rows)]
    for name in chosen:
        measured = ROWS[name].measure()
        print(line_of(name, measured), flush=True)
        if given.write:
            PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), {name: measured}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
