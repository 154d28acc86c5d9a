"""A sweep from a TOML file: which problem, which options, which seeds. Everything is checked before any work.

::

    name = "toy-gamma"                # heads tables and files; default: the file's own name
    problem = "toy.py"                # FILE.py[:NAME], toy, three, nine, seville, network:PATH or svm:DATA
    seeds = 5                         # 0 to 4, or a list; default: 0 alone
    start = "random"                  # or "middle", or x0 = [...]; problem files and the toy only

    [options]                         # the same for all cells
    tolerance = 1e-6

    [grid]                            # every combination of these
    gamma = [1.0, 2.0, 5.0]

    [arguments]                       # of the function NAME that builds the problem
    [grid.arguments]                  # and lists of such

    [output]
    columns = ["upper_value", "gap"]  # what the pictures show
    folder = "runs/toy-gamma"
"""

from __future__ import annotations

import difflib
import itertools
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blocc._lib.files import read_limited, shown
from blocc.errors import BloccError, InputError
from blocc.studies.study import MOST_CELLS, Study
from blocc.studies.sweep_cells import ARGUMENT, MEASURED
from blocc.studies.sweep_targets import PROBLEMS, ProblemTarget, Target, confined, find_target

MOST_BYTES = 1_000_000
MOST_LETTERS = 100  #: of a name, which becomes the name of files

_KEYS = ("name", "problem", "seeds", "start", "x0", "options", "arguments", "grid", "output")
_OUTPUT = ("columns", "folder")


@dataclass(frozen=True)
class Sweep:
    """A study, and what its file says about its output."""

    study: Study
    columns: tuple[str, ...]  #: to draw
    folder: Path | None  #: where the file wants the output, if it says so


def read_sweep(path: str | Path, *, anywhere: bool = False) -> Sweep:
    """Read and check a TOML file; the error for any mistake names the key and what would be right.

    Paths in it begin at its own folder and may lead to anything in there or in the working folder; ``anywhere`` allows
    all others, too. A problem file that it names is executed, so it deserves the trust of a program.
    """
    file = Path(path)
    content = _parse(file)
    try:
        return _plan(content, file, anywhere)
    except BloccError as error:
        raise InputError(f"{file}: {error}") from error
    except (OSError, RecursionError) as error:  # a path that no system takes, values nested without end
        raise InputError(f"{file} cannot be used: {error!s:.200}") from error


def _plan(content: Mapping[str, Any], file: Path, anywhere: bool) -> Sweep:
    _check_keys(content, _KEYS, "")
    _check_values(content)
    problem = content.get("problem")
    if not isinstance(problem, str) or not problem:
        raise InputError(f"problem must be {PROBLEMS}, got {'nothing' if problem is None else repr(problem)}")
    options, arguments, grid = (_table(content, key) for key in ("options", "arguments", "grid"))
    grid_arguments = _table(grid, "arguments", "grid.arguments")
    grid = {key: values for key, values in grid.items() if key != "arguments"}
    target = find_target(problem, file.parent, anywhere)
    for place, names in (("options", options), ("grid", grid)):
        _check_keys(names, target.options, f"{place}.")
    for place, values in (("grid", grid), ("grid.arguments", grid_arguments)):
        for key in values:
            _check_list(f"{place}.{key}", values[key])
    _check_twice(options, grid, "options", "grid")
    _check_twice(arguments, grid_arguments, "arguments", "grid.arguments")
    seeds = _seeds(content.get("seeds", [0]))
    # Whatever the arguments, their names are the same: the first of them stand for all.
    firsts = {**arguments, **{key: values[0] for key, values in grid_arguments.items()}}
    start = _start(content, target, firsts)
    study = Study(
        name=_name(content, file),
        function=target.function,
        grid={**grid, **{ARGUMENT + key: values for key, values in grid_arguments.items()}},
        seeds=seeds,
        fixed={**target.fixed, **start, **options, **{ARGUMENT + key: value for key, value in arguments.items()}},
        measured=MEASURED,
    )
    _check_options(target, options, grid, firsts)
    columns, folder = _output(_table(content, "output"), target, file, anywhere)
    return Sweep(study, columns, folder)


# --- the file ------------------------------------------------------------------------------------------------------
def _parse(file: Path) -> dict[str, Any]:
    if not file.exists():
        raise InputError(f"there is no file {str(file)!r}; give the path of a TOML file")
    data = read_limited(file, MOST_BYTES, InputError)
    try:
        return tomllib.loads(data.decode("utf-8"))
    # Besides bad TOML and bad UTF-8: an integer of thousands of digits, and brackets without end.
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not a TOML file: {error}") from error


def _table(content: Mapping[str, Any], key: str, name: str = "") -> dict[str, Any]:
    value = content.get(key, {})
    if not isinstance(value, dict):
        raise InputError(f"{name or key} must be a table, a line [{name or key}] with keys below, got {shown(value)}")
    return value


def _check_keys(content: Mapping[str, Any], known: Sequence[str], prefix: str) -> None:
    for key in content:
        if key not in known:
            hint = "; the seeds of a study are its key seeds" if key == "seed" else ""
            raise InputError(f"unknown key {prefix}{key}; {_guess(key, known, 'the keys there are', prefix)}{hint}")


def _guess(name: str, known: Sequence[str], otherwise: str, prefix: str = "") -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {prefix}{near[0]}?" if near else f"{otherwise} {', '.join(known)}"


def _check_list(key: str, values: Any) -> None:
    if not isinstance(values, list) or not values:
        raise InputError(f"{key} must be a list of at least one value, for instance [1, 2], got {shown(values)}")
    seen: set[str] = set()  # as text, so that a long list takes no longer than it must
    for value in values:
        text = json.dumps(value, sort_keys=True)
        if text in seen:
            raise InputError(f"{key} holds {shown(value)} twice; every value once")
        seen.add(text)


def _check_twice(fixed: Mapping[str, Any], grid: Mapping[str, Any], first: str, second: str) -> None:
    for key in fixed:
        if key in grid:
            raise InputError(f"{key} stands in {first} and in {second}; leave one of the two out")


def _check_values(value: Any, key: str = "") -> None:
    """Refuse what JSON cannot hold: dates, infinities, NaN."""
    if isinstance(value, dict):
        for name, part in value.items():
            _check_values(part, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for part in value:
            _check_values(part, key)
    elif not isinstance(value, str | bool | int | float):
        raise InputError(f"{key} must hold texts, numbers, true or false, got {value}")
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{key} must be finite, got {value!r}")


# --- single keys ---------------------------------------------------------------------------------------------------
def _name(content: Mapping[str, Any], file: Path) -> str:
    if "name" not in content:
        return re.sub(r"[^a-z0-9]+", "-", file.stem.lower()).strip("-") or "study"
    name = content["name"]
    if not isinstance(name, str) or not re.fullmatch(rf"[a-z0-9-]{{1,{MOST_LETTERS}}}", name):
        raise InputError(
            f"name must be lower-case letters, digits and hyphens, at most {MOST_LETTERS}, got {shown(name)}"
        )
    return name


def _seeds(value: Any) -> list[int]:
    def is_whole(number: Any) -> bool:
        return isinstance(number, int) and not isinstance(number, bool) and number >= 0

    if is_whole(value) and 0 < value <= MOST_CELLS:
        return list(range(value))
    if isinstance(value, list) and value and all(map(is_whole, value)) and len(set(value)) == len(value):
        return value
    raise InputError(f"seeds must be how many, or a list of different whole numbers from 0 on, got {shown(value)}")


def _start(content: Mapping[str, Any], target: Target, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Where every cell begins, as parameters."""
    given = [key for key in ("start", "x0") if key in content]
    if not isinstance(target, ProblemTarget):
        if given:
            raise InputError(f"{given[0]} is for problem files and the toy; networks and samples draw their own starts")
        return {}
    if len(given) == 2:
        raise InputError("start and x0 exclude each other; leave one of the two out")
    if "x0" in content:
        target.check_start(content["x0"], arguments)
        return {"x0": content["x0"]}
    start = content.get("start", "random" if "seeds" in content else "middle")
    if start not in ("random", "middle"):
        raise InputError(f"start must be 'random' (the seed draws it) or 'middle', or give x0; got {shown(start)}")
    return {"start": start}


def _output(
    table: Mapping[str, Any], target: Target, file: Path, anywhere: bool
) -> tuple[tuple[str, ...], Path | None]:
    _check_keys(table, _OUTPUT, "output.")
    columns, folder = table.get("columns", list(target.shown)), table.get("folder")
    if not isinstance(columns, list) or not columns:
        raise InputError(f"output.columns must be a list of names, got {shown(columns)}")
    for column in columns:
        if column not in target.columns:
            guess = _guess(str(column), target.columns, "there are")
            raise InputError(f"output.columns names {shown(column)}, which no row has; {guess}")
    if folder is not None and (not isinstance(folder, str) or not folder):
        raise InputError(f"output.folder must be the path of a folder, got {shown(folder)}")
    return tuple(columns), None if folder is None else confined(folder, file.parent, "output.folder", anywhere)


def _check_options(
    target: Target, options: Mapping[str, Any], grid: Mapping[str, Sequence[Any]], arguments: Mapping[str, Any]
) -> None:
    """Try every combination of options."""
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        try:
            target.check({**options, **point}, arguments)
        except BloccError as error:
            where = ", ".join(f"{key} = {value!r}" for key, value in point.items())
            raise InputError(f"{error} (in the cells with {where})" if where else str(error)) from error
