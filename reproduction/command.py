"""The command ``blocc reproduce``: the tables and figures of the paper, computed again."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from blocc.cli.studies import (
    EXECUTOR_HELP,
    FAILED,
    FRESH_HELP,
    INTERRUPTED,
    PAGE,
    SCHEDULER_HELP,
    STORE,
    WISHES,
    WORKERS_HELP,
    Computing,
    print_counts,
    run_here,
)
from blocc.cli.svm_input import check_folder
from blocc.problems.loading import InputError
from blocc.report.storage import write_files
from blocc.report.study.study_items import share_missing, study_views, view_item
from blocc.report.study.study_page import write_page
from blocc.report.study.study_progress import clock
from blocc.report.study.study_reading import read_report
from blocc.report.study.study_tables import item_files
from blocc.report.study.study_terminal import print_item, print_table
from blocc.report.study.study_views import ItemView, StudyView
from blocc.studies.item import Item

with contextlib.suppress(ImportError):  # the entry point says what is missing
    import typer

DATA = "BLOCC_DATA"
_TITLE = "Experiments of the paper"


def reproduce_command(
    items: Annotated[list[str] | None, typer.Argument(help="Items by name. Default: all.", metavar="[ITEM...]")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Reduced sizes: minutes instead of hours.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for rows, tables, pictures and the page.")] = Path("runs/reproduce"),
    data: Annotated[
        Path | None, typer.Option(help=f"Folder with data sets. Default: ${DATA}, else ../shared/datasets.")
    ] = None,
    executor: Annotated[str, typer.Option(help=EXECUTOR_HELP)] = "serial",
    workers: Annotated[int | None, typer.Option(help=WORKERS_HELP)] = None,
    scheduler: Annotated[str | None, typer.Option(help=SCHEDULER_HELP)] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help=FRESH_HELP)] = False,
    quiet: Annotated[bool, typer.Option(help="Print nothing; the exit code tells.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Only list the items.")] = False,
) -> None:
    """Compute the tables and figures of the paper again, and say which of its statements hold.

    It may be stopped at any time: the same command goes on where it stopped. Exit code 0: every cell is done;
    3: some cells failed; 130: interrupted; 2: bad input.
    """
    from reproduction.items import ITEMS, MODULE_OF, UNAVAILABLE

    folder = data_folder(data)
    chosen = choose(items or [], ITEMS, UNAVAILABLE)
    absent = {} if items else UNAVAILABLE
    if listed:
        _print_list(chosen)
        for name, reason in absent.items():
            print(f"not available: {name}: {reason}")
        raise typer.Exit()
    computing = Computing(executor, workers, scheduler, fresh, quiet)
    check_folder(out)
    # Items look for their data here, and so do worker processes, which inherit it.
    os.environ[DATA] = str(folder)
    skipped = {item.name: reason for item in chosen if (reason := why_not(item, folder))}
    ready = [item for item in chosen if item.name not in skipped]
    store = out / STORE
    before = {item.name: study_views(item, store, quick=quick) for item in ready}
    if not quiet:
        for name, reason in {**skipped, **absent}.items():
            print(f"skipped: {name}: {reason}")
        print(expectation(ready, before, quick=quick, fresh=fresh))
    wishes = {"title": _TITLE, "items": [item.name for item in ready], "quick": quick}
    write_files(out, {WISHES: (json.dumps(wishes, indent=1) + "\n").encode()})
    studies = [view.study for item in ready for view in before[item.name]]
    finished = run_here(studies, store, computing)
    views = [view_item(item, MODULE_OF.get(item.name, ""), store, quick=quick) for item in ready]
    views += [ItemView(item.name, item.title, skipped=skipped[item.name]) for item in chosen if item.name in skipped]
    written = []
    for item, view in zip(ready, views, strict=False):
        if view.findings is not None:
            written += write_files(out, item_files(view, study_views(item, store, quick=quick)))
    if not quiet:
        for view in views:
            print_item(view)
    failed = 0
    if store.exists():
        report = read_report(store, _TITLE, items=views)
        written.append(write_page(report, out / PAGE))
        failed = report.failed
        if not quiet:
            print()
            print_counts(report)
    if not quiet:
        for path in written:
            print(f"written: {path}")
    unusable = any(view.findings is None for view in views[: len(ready)])
    raise typer.Exit(INTERRUPTED if not finished else FAILED if failed or unusable else 0)


def choose(names: Sequence[str], items: dict[str, Item], absent: dict[str, str]) -> list[Item]:
    """The items of these names, in the order of the paper; all where none is named.

    Hyphens and underscores are the same.
    """
    known = {name.replace("_", "-"): item for name, item in items.items()}
    wanted = [name.replace("_", "-") for name in names]
    for name, given in zip(wanted, names, strict=True):
        if name not in known and name.replace("-", "_") in absent:
            raise InputError(f"the item {given!r} is not available: {absent[name.replace('-', '_')]}")
        if name not in known:
            raise InputError(f"there is no item {given!r}; the items are {', '.join(items)}")
    return [item for name, item in known.items() if not wanted or name in wanted]


def data_folder(given: Path | None) -> Path:
    """Where data sets are looked for."""
    if given is not None:
        if not given.is_dir():
            raise InputError(f"--data must be a folder, but there is none at {str(given)!r}")
        return given.resolve()
    return Path(os.environ.get(DATA) or Path("..") / "shared" / "datasets").resolve()


def why_not(item: Item, folder: Path) -> str:
    """Which data set an item lacks, as a sentence; empty where it has all."""
    present = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    present |= {Path(name).stem for name in present}
    missing = [name for name in item.needs if name not in present]
    if not missing:
        return ""
    where = f"{folder} does not have" if folder.is_dir() else f"there is no folder {folder} with"
    return f"{where} the data set {' and '.join(missing)}; --data names another folder"


def expectation(items: Sequence[Item], before: dict[str, list[StudyView]], *, quick: bool, fresh: bool) -> str:
    """How long it will take, as a sentence."""
    seconds = cells = stored = 0.0
    for item in items:
        views = before[item.name]
        missing = 1.0 if fresh else share_missing(views)
        seconds += item.seconds[0 if quick else 1] * missing
        cells += sum(view.total for view in views)
        stored += 0 if fresh else sum(len(view.done) for view in views)
    known = f", {stored:.0f} of them done before" if stored else ""
    size = "reduced size" if quick else "full size"
    names = ", ".join(item.name for item in items) or "nothing"
    return f"{names} at {size}: {cells:.0f} cells{known}; expected time {clock(seconds)} on two cores"


def _print_list(items: Sequence[Item]) -> None:
    rows = [
        {
            "item": item.name,
            "quick": clock(item.seconds[0]),
            "full": clock(item.seconds[1]),
            "needs": ", ".join(item.needs),
            "title": item.title,
        }
        for item in items
    ]
    print_table(rows, "Items of the paper", "with the time each takes at reduced and at full size")
