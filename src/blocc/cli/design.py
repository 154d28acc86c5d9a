"""The command ``blocc design``: from a network to a designed one, with its files and its report."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Annotated

from blocc.cli.common import EXIT_CODES, parse_gamma, print_headed
from blocc.cli.network import Reader, reads_network
from blocc.errors import OptionError
from blocc.report.progress import ProgressLine
from blocc.report.transport.design_tables import design_document, write_design
from blocc.transport import design_network

with contextlib.suppress(ImportError):  # the entry point says what is missing
    import typer


@reads_network
def design_command(
    read: Reader,
    gamma: Annotated[str, typer.Option(help="'auto', or a number: the penalty.")] = "auto",
    starts: Annotated[
        int | None, typer.Option(help="Random starts; the best design is kept. Default: 5, or 1 with --preset paper.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the starts.")] = 0,
    budget: Annotated[float | None, typer.Option(help="The most that construction may cost.")] = None,
    symmetric: Annotated[bool, typer.Option("--symmetric", help="Same capacity in both directions.")] = False,
    max_capacity: Annotated[
        str | None, typer.Option(help="The most a link may have: a number, or a JSON list with one for each link.")
    ] = None,
    method: Annotated[str, typer.Option(help="prices, or pgd: Algorithm 1.")] = "prices",
    preset: Annotated[str, typer.Option(help="default, or paper: Algorithm 1 with the published step.")] = "default",
    tolerance: Annotated[float, typer.Option(help="What the certificate may lack, relative to 1 + |utility|.")] = 1e-3,
    time_limit: Annotated[float | None, typer.Option(help="Seconds; the best design so far is kept.")] = None,
    max_iterations: Annotated[int | None, typer.Option(help="Most steps of Algorithm 1.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="File in which the run keeps itself as it goes.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Such a file, to go on from; give the other options once more.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the design's files and report.html.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the design as JSON.")] = False,
    quiet: Annotated[bool, typer.Option(help="Print nothing; the exit code tells.")] = False,
) -> None:
    """Choose which links to build, and how large, when travellers choose freely.

    Ctrl-C keeps the best design so far. The exit code says how it ended; blocc --help lists them.
    """
    network, limit, level = read(), _limit(max_capacity), parse_gamma(gamma)
    with ProgressLine() as line:
        report = None if quiet or not sys.stderr.isatty() else line
        design = design_network(
            network,
            gamma="auto" if level is None else level,
            starts=starts,
            seed=seed,
            budget=budget,
            symmetric=symmetric,
            max_capacity=limit,
            method=method,
            preset=preset,
            tolerance=tolerance,
            time_limit=time_limit,
            max_iterations=max_iterations,
            report=report,
            checkpoint=checkpoint,
            resume=resume,
        )
    written = [] if out is None else write_design(design, out)
    if as_json:
        print(json.dumps(design_document(design), indent=2))
    elif not quiet:
        print_headed(repr(design), design.success)
        for path in written:
            print(f"written: {path}")
    raise typer.Exit(EXIT_CODES[design.status])


def _limit(text: str | None) -> float | list[float] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, (int, float, list)) or isinstance(value, bool):
        raise OptionError(f"--max-capacity must be a number or a JSON list of numbers, got {text!r}")
    return value
