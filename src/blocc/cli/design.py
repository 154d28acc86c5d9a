"""The command ``blocc design``: from a network to a designed one, with its files and its report."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from blocc.cli.common import EXIT_CODES, parse_gamma, print_headed
from blocc.cli.network import Option, Reader, reads_network
from blocc.errors import OptionError
from blocc.report.progress import ProgressLine
from blocc.report.transport.design_tables import design_document, write_design
from blocc.transport import DesignOptions, design_network

with contextlib.suppress(ImportError):  # the entry point says what is missing
    import typer


#: Options of ``design_network``: how each is given here, and what it means.
_OPTIONS = {
    "gamma": Option(str, "'auto', or a number: the penalty."),
    "starts": Option(int, "Random starts; the best design is kept. Default: 5, or 1 with --preset paper."),
    "seed": Option(int, "Seed of the starts."),
    "budget": Option(float, "The most that construction may cost."),
    "symmetric": Option(bool, "Same capacity in both directions.", flags=("--symmetric",)),
    "max_capacity": Option(str, "The most a link may have: a number, or a JSON list with one for each link."),
    "method": Option(str, "prices, or pgd: Algorithm 1."),
    "preset": Option(str, "default, or paper: Algorithm 1 with the published step."),
    "tolerance": Option(float, "What the certificate may lack, relative to 1 + |utility|."),
    "time_limit": Option(float, "Seconds; the best design so far is kept."),
    "max_iterations": Option(int, "Most steps of Algorithm 1."),
}
_DEFAULTS = {field.name: field.default for field in fields(DesignOptions)}


@partial(reads_network, options={name: _OPTIONS[name]._replace(default=_DEFAULTS[name]) for name in _OPTIONS})
def design_command(
    read: Reader,
    checkpoint: Annotated[Path | None, typer.Option(help="Keep the run itself here, to continue it later.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run that was kept here.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the design's files and report.html.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the design as JSON.")] = False,
    quiet: Annotated[bool, typer.Option(help="Print nothing; the exit code tells.")] = False,
    **options: Any,
) -> None:
    """Choose which links to build, and how large, when travellers choose freely.

    Ctrl-C keeps the best design so far. The exit code says how it ended; blocc --help lists them.
    """
    network = read()
    options |= {"gamma": parse_gamma(options["gamma"]), "max_capacity": _limit(options["max_capacity"])}
    with ProgressLine() as line:
        report = None if quiet or not sys.stderr.isatty() else line
        design = design_network(network, report=report, checkpoint=checkpoint, resume=resume, **options)
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
