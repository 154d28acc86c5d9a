"""The commands ``blocc sweep`` and ``blocc report``: a study from a TOML file, and the page of any studies."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from blocc._lib.files import json_bytes, parse_json, read_limited
from blocc._lib.signals import Shield, listening
from blocc.cli.common import Quiet, check_folder
from blocc.cli.ending import INTERRUPTED
from blocc.errors import InputError
from blocc.executors.choice import NAMES, make_executor
from blocc.kit.storage import write_files
from blocc.kit.text import value_text
from blocc.report.study.study_page import state_of, write_page
from blocc.report.study.study_progress import StudyProgress, clock
from blocc.report.study.study_tables import print_table, study_files
from blocc.report.study.study_views import Report, read_report, seconds_of, summary_rows
from blocc.studies.engine import run_study
from blocc.studies.study import Study
from blocc.studies.sweep import read_sweep

SOME_FAILED = 3
STORE, PAGE = "study.sqlite", "index.html"
#: Beside the store: what a report should show of it.
REPORT_SETTINGS = "report.json"
_MOST_BYTES = 1_000_000  #: of these settings
_MOST_LINES = 40

EXECUTOR_HELP = "serial, processes (on this machine) or dask (on a cluster)."
WORKERS_HELP = "How many processes. Default: one for each core."
SCHEDULER_HELP = "Address of a running Dask scheduler, tcp://HOST:PORT, or tls:// with certificates."
ANYWHERE_HELP = "Follow paths of the study out of its folder and out of the working folder, too."
FRESH_HELP = "Forget what was computed before."


@dataclass(frozen=True)
class Computing:
    """How cells are to be computed, as the commands take it."""

    executor: str
    workers: int | None
    scheduler: str | None
    fresh: bool
    quiet: bool

    def __post_init__(self) -> None:
        if self.executor not in NAMES:
            raise InputError(f"--executor must be one of {', '.join(NAMES)}, got {self.executor!r}")
        make_executor(self.executor, self.workers, self.scheduler)  # says what does not fit, before any work

    @property
    def options(self) -> dict[str, Any]:
        """The same, as ``run_study`` takes it."""
        return {name: value for name, value in vars(self).items() if name != "quiet"}


def sweep_command(
    study: Annotated[Path, typer.Argument(help="A TOML file that describes the study.", metavar="STUDY.toml")],
    out: Annotated[Path | None, typer.Option(help="Folder for the rows and the report. Default: runs/NAME.")] = None,
    executor: Annotated[str, typer.Option(help=EXECUTOR_HELP)] = "serial",
    workers: Annotated[int | None, typer.Option(help=WORKERS_HELP)] = None,
    scheduler: Annotated[str | None, typer.Option(help=SCHEDULER_HELP)] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help=FRESH_HELP)] = False,
    anywhere: Annotated[bool, typer.Option("--anywhere", help=ANYWHERE_HELP)] = False,
    quiet: Quiet = False,
) -> None:
    """Run a study over a grid of options and seeds, and write its tables, pictures and page.

    It may be stopped at any time: the same command goes on where it stopped. Exit code 0: every cell is done;
    3: some cells failed; 130 or 143: stopped by a signal; 2: bad input.
    """
    computing = Computing(executor, workers, scheduler, fresh, quiet)
    plan = read_sweep(study, anywhere=anywhere)
    folder = out or plan.folder or Path("runs") / plan.study.name
    check_folder(folder)
    name = plan.study.name
    settings = {"title": name, "shown": {name: list(plan.columns)}}
    write_files(folder, {REPORT_SETTINGS: json_bytes(settings), "study.toml": study.read_bytes()})
    finished = run_here([plan.study], folder / STORE, computing)
    with listening(Shield()):
        report = read_report(folder / STORE, name, shown={name: plan.columns})
        view = next(found for found in report.studies if found.study.name == name)
        written = write_files(folder, study_files(view))
        written.append(write_page(report, folder / PAGE))
        if not quiet:
            if view.done:
                print_table(
                    summary_rows(view)[:_MOST_LINES], name, "means over the seeds" if len(view.study.seeds) > 1 else ""
                )
            print_counts(report)
            if any("success" in row for row in view.done):
                print(f"{sum(bool(row.get('success')) for row in view.done)} of {len(view.done)} runs converged")
            for row in view.failed[:5]:
                where = ", ".join(f"{key} {value_text(row.get(key))}" for key in view.parameters)
                print(f"  failed: {where}: {str(row.get('error')).partition(chr(10))[0]}")
            for path in written:
                print(f"written: {path}")
    raise typer.Exit(INTERRUPTED if not finished else SOME_FAILED if view.failed else 0)


def report_command(
    run: Annotated[Path, typer.Argument(help="A folder with studies, which blocc sweep wrote.", metavar="RUN")],
    out: Annotated[Path | None, typer.Option(help="The page. Default: RUN/index.html.")] = None,
    quiet: Annotated[bool, typer.Option(help="Print nothing.")] = False,
) -> None:
    """Write the page of a run again, also while it is still going on.

    Exit code 0: written; 2: there is no run.
    """
    store = find_store(run)
    settings = read_report_settings(store.parent)
    report = read_report(store, settings["title"], shown=settings["shown"])
    path = write_page(report, out or store.parent / PAGE)
    if not quiet:
        print_counts(report)
        print(f"written: {path}")


# --- for every program that runs studies -----------------------------------------------------------------------------
def run_here(studies: Sequence[Study], store: Path, computing: Computing) -> bool:
    """Compute what is missing of every study, and show how far they are; False where interrupted."""
    with StudyProgress(quiet=computing.quiet) as shown_progress:
        for place, study in enumerate(studies):
            shown_progress.begin(f"{study.name} ({place + 1} of {len(studies)})" if len(studies) > 1 else study.name)
            try:
                run_study(study, store, on_progress=shown_progress.report, **computing.options)
            except KeyboardInterrupt:
                shown_progress.close()
                if not computing.quiet:
                    newest = shown_progress.newest
                    done = f"{newest.done} of {newest.total} cells of {study.name} are done and kept" if newest else ""
                    words = f"interrupted; {done or 'nothing was begun'}; the same command goes on from there"
                    print(words, file=sys.stderr)
                return False
    return True


def find_store(run: Path) -> Path:
    """The store of a run, given by its folder or by itself."""
    store = run / STORE if run.is_dir() else run
    if not store.is_file():
        raise InputError(f"there is no run in {str(run)!r}; give a folder with a file {STORE}")
    return store


def read_report_settings(folder: Path) -> dict[str, Any]:
    """What a report of this folder should show: its ``title``, columns ``shown`` of studies, ``items``, ``quick``.

    Whoever wrote the folder wrote the file: what is not as it should be is left out.
    """
    try:
        found = parse_json(read_limited(folder / REPORT_SETTINGS, _MOST_BYTES, InputError), REPORT_SETTINGS, InputError)
    except InputError:
        found = {}
    settings = found if isinstance(found, dict) else {}
    shown_columns = settings.get("shown")
    columns_by_study = shown_columns if isinstance(shown_columns, dict) else {}
    return {
        "title": settings["title"] if isinstance(settings.get("title"), str) else "",
        "items": _texts(settings.get("items")),
        "quick": settings.get("quick") is True,
        "shown": {name: _texts(columns) for name, columns in columns_by_study.items()},
    }


def _texts(value: Any) -> list[str]:
    return [part for part in value if isinstance(part, str)] if isinstance(value, list) else []


def print_counts(report: Report) -> None:
    """How far a run is, in one line."""
    _, state = state_of(report)
    seconds = sum(seconds_of(row) for view in report.studies for row in view.done)
    print(
        f"{state}: {report.total} cells, {report.done} done, {report.failed} failed, {report.missing} missing; "
        f"{clock(seconds)} of computing"
    )
