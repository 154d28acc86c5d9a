"""The command ``blocc bench``: every method on a suite of problems, with performance profiles on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from blocc._lib.digests import sealed
from blocc._lib.files import json_bytes
from blocc._lib.signals import Shield, listening
from blocc._lib.tables import csv_bytes
from blocc.cli.common import Seed, check_folder, check_options
from blocc.cli.compare import parse_methods
from blocc.cli.ending import INTERRUPTED
from blocc.cli.studies import PAGE, SOME_FAILED, STORE, Computing, print_counts, run_here
from blocc.errors import InputError
from blocc.kit.storage import write_files
from blocc.report.study.bench_latex import paper_files
from blocc.report.study.benchmark import bench_item, best_values, profile_rows, without_ways
from blocc.report.study.study_page import write_page
from blocc.report.study.study_tables import item_files, print_item
from blocc.report.study.study_views import ItemView, Report, StudyView
from blocc.run.conclude import versions
from blocc.studies.benchmark import ALGORITHM_1, QUICK, ROWS, bench_study, full_suite
from blocc.studies.engine import rows_of

_PROBLEMS = (
    "Separated by commas: toy, three, svm, gam-svm, svm:DATA, gam-svm:DATA, or names of problems with known answers. "
    "Default: a few of each kind."
)


def bench_command(
    problems: Annotated[str | None, typer.Option(help=_PROBLEMS)] = None,
    methods: Annotated[str | None, typer.Option(help="Separated by commas. Default: all of this package.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Every problem that dense matrices can hold; hours.")] = False,
    preset: Annotated[str, typer.Option(help="default, or paper: the published numbers.")] = "default",
    time_limit: Annotated[float, typer.Option(help="Seconds for each method and problem, without compilation.")] = 5.0,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="Folder for the page, the tables and the picture.")] = Path("runs/bench"),
    *,
    computing: Computing,
) -> None:
    """Run every method on a suite of problems, and draw performance profiles at the exact lower level.

    It may be stopped at any time: the same command goes on where it stopped. Times of cells that run beside others are
    not worth comparing: leave the executor serial where time matters. Exit code 0: every cell is done; 3: some cells
    failed; 130 or 143: stopped by a signal; 2: bad input.
    """
    check_options({"time_limit": time_limit, "seed": seed, "preset": preset}, {"preset": ("default", "paper")})
    check_folder(out)
    study = bench_study(
        _parse_problems(problems, full),
        parse_methods(methods, (ALGORITHM_1,)) or ROWS,
        time_limit=time_limit,
        preset=preset,
        seed=seed,
    )
    finished = run_here([study], out / STORE, computing)
    with listening(Shield()):
        view = StudyView(study, rows_of(study, out / STORE))
        item = bench_item(view)
        written = _write(view, item, out)
        if not computing.quiet:
            print_item(item)
            print_counts(Report(study.name, [view]))
            for path in written:
                print(f"written: {path}")
    raise typer.Exit(INTERRUPTED if not finished else SOME_FAILED if view.failed else 0)


def _write(view: StudyView, item: ItemView, folder: Path) -> list[Path]:
    """The page and the files beside it."""
    shown = without_ways(view)
    facts = {**versions(), **view.study.fixed}
    document = {
        "settings": facts,
        "best": best_values(view),
        "rows": view.rows,
        "profiles": profile_rows(view),
    }
    files = {
        **item_files(item, [shown]),
        "profiles-curves.csv": csv_bytes(profile_rows(view)),
        **paper_files(view),
        "bench.json": json_bytes(sealed(document)),
    }
    written = write_files(folder, files, "the benchmark")
    return [*written, write_page(Report("Benchmark of bilevel methods", [shown], [item], facts), folder / PAGE)]


def _parse_problems(text: str | None, full: bool) -> list[str]:
    if text is None:
        return list(full_suite() if full else QUICK)
    if full:
        raise InputError("--problems and --full exclude each other")
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"--problems must be names such as toy,three, got {text!r}")
    return list(dict.fromkeys(names))
