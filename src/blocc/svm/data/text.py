"""Text files with samples: checked lines, CSV records and LIBSVM lines; every complaint names its line."""

from __future__ import annotations

import csv
import math
import operator
import re
from array import array
from collections.abc import Iterator
from pathlib import Path

from blocc._lib.files import shown
from blocc.errors import InputError

MAX_BYTES = 2 * 10**9
MAX_LINE_BYTES = 64 * 2**20
MAX_INDEX = 10**6
MAX_LABEL = 200  # NumPy gives every label the width of the longest
LABEL_NAMES = ("label", "target", "class", "y")
MISSING = ("", "?", "na", "n/a", "nan", "null", "none")
LIBSVM_LINE = "a line of a LIBSVM file reads 'label index:value index:value ...'"
_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_SAMPLE = re.compile(rf"\s*{_NUMBER}(?:\s+0*(?:[1-9]\d{{0,5}}|1000000):{_NUMBER})*+\s*", re.ASCII)
_PAIR = re.compile(rf"(?:qid|\d+):{_NUMBER}", re.ASCII)


class ArgumentError(InputError):
    """An argument beside the file is to blame; the message begins with its name."""


def checked_path(source: str | Path, instead: str = "") -> Path:
    """The path of a file that is not too large; ``instead`` says what else could have been given."""
    path = Path(source)
    try:
        found = path.is_file()
        size = path.stat().st_size if found else 0
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {str(path)!r}: {getattr(error, 'strerror', None) or error}") from error
    if not found:
        raise InputError(f"there is no file {str(path)!r}; give the path of a CSV or LIBSVM file{instead}")
    if size > MAX_BYTES:
        raise InputError(f"{path} has {size / 1e9:.1f} GB; files up to {MAX_BYTES / 1e9:.1f} GB are read")
    return path


def lines_of(path: Path) -> Iterator[str]:
    """Lines of a UTF-8 file, ended by LF, CRLF or CR, with or without a byte order mark."""
    number = 1
    try:
        with path.open("rb") as handle:
            while raw := handle.readline(MAX_LINE_BYTES + 1):
                place = f"{path.name} line {number}"
                if len(raw) > MAX_LINE_BYTES:
                    raise InputError(f"{place}: is longer than {MAX_LINE_BYTES:,} bytes; is this a text file?")
                if b"\0" in raw:
                    raise InputError(f"{place}: holds a zero byte; the file must be text with the encoding UTF-8")
                try:
                    text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError:
                    raise InputError(f"{place}: is not UTF-8; save the file with the encoding UTF-8") from None
                for piece in text.removesuffix("\n").removesuffix("\r").split("\r"):
                    yield piece + "\n"
                    number += 1
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror or error}") from error


def finite_number(text: str) -> float | None:
    """A finite number, or None; Python's underscores between digits do not make one."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None


# --- CSV -----------------------------------------------------------------------------------------------------------
def find_delimiter(path: Path) -> str:
    """The delimiter that cuts the first line into most cells; a decimal comma loses against a semicolon."""

    def cells(line: str, delimiter: str) -> int:
        try:
            return len(next(csv.reader([line], delimiter=delimiter)))
        except csv.Error:
            return 0

    first = next((line for line in lines_of(path) if line.strip()), "")
    return max("\t;,", key=lambda delimiter: cells(first, delimiter))


def find_label(file: str, first: list[str], label: str | int | None) -> tuple[int, bool]:
    """The position of the labels, and whether the first record holds headings."""
    if label is None:
        return _usual_label(file, first)
    if isinstance(label, str):
        try:
            position = int(label)
        except ValueError:
            return _named(file, first, label), True
        places = [place for place, cell in enumerate(first) if cell.strip() == label.strip()]
        if places and _are_headings(first, places[0]):
            return _named(file, first, label), True  # a heading such as "2023" is meant
    else:
        try:
            position = operator.index(label)
        except TypeError:
            raise ArgumentError(f"label must be a heading or the position of a column, got {label!r}") from None
    if not -len(first) <= position < len(first):
        raise ArgumentError(
            f"label = {shown(str(label))} is not a column of {file}, which has {len(first)}; "
            f"give a position from 0 to {len(first) - 1}, or from -1 backwards, or a heading"
        )
    position %= len(first)
    return position, _are_headings(first, position)


def label_cell(cell: str, place: str) -> str:
    """A label, checked."""
    text = cell.strip()
    if text.lower() in MISSING:
        raise InputError(f"{place}: the label is missing ({shown(text)}); every sample needs one")
    if len(text) > MAX_LABEL:
        raise InputError(f"{place}: the label has {len(text)} characters; up to {MAX_LABEL} are read")
    return text


def feature_cells(cells: list[str], place: str, titles: list[str]) -> list[float]:
    """The features of one record, checked; ``titles`` says how the columns are called in messages."""
    try:
        numbers = [float(cell) for cell in cells]
        if all(map(math.isfinite, numbers)) and "_" not in "".join(cells):
            return numbers
    except ValueError:
        pass  # the loop below finds out which cell it is
    for cell, title in zip(cells, titles, strict=True):
        text = cell.strip()
        if finite_number(text) is None:
            what = "the value is missing" if text.lower() in MISSING else "not a finite number"
            decimal = finite_number(text.replace(",", ".")) is not None
            hint = "write decimals with a point" if decimal else "features must be numbers"
            raise InputError(f"{place}, {title}: {shown(text)}: {what}; {hint}")
    raise AssertionError("unreachable: some cell is not a finite number")


def column_title(position: int, heading: str) -> str:
    """How messages call a column."""
    return f"column {position + 1} ({heading})" if heading else f"column {position + 1}"


def _usual_label(file: str, first: list[str]) -> tuple[int, bool]:
    """The column with a usual heading, otherwise the last."""
    usual = [place for place, cell in enumerate(first) if cell.strip().lower() in LABEL_NAMES]
    guess = usual[0] if usual else len(first) - 1
    if not _are_headings(first, guess):
        return len(first) - 1, False
    if len(usual) > 1:
        found = ", ".join(first[place].strip() for place in usual)
        raise InputError(f"{file}: several columns could be the label ({found}); choose one with label")
    return guess, True


def _named(file: str, first: list[str], label: str) -> int:
    """The position of a heading: written exactly so, otherwise in upper or lower case."""
    exact = [place for place, cell in enumerate(first) if cell.strip() == label.strip()]
    places = exact or [place for place, cell in enumerate(first) if cell.strip().lower() == label.strip().lower()]
    if len(places) > 1:
        raise InputError(f"{file}: the heading {label!r} occurs more than once; give the position of the label column")
    if not places:
        found = ", ".join(cell.strip() or "(no name)" for cell in first[:30])
        raise InputError(f"{file} has no column {label!r}; its first line reads: {found[:500]}")
    return places[0]


def _are_headings(first: list[str], label: int) -> bool:
    """Whether a record holds headings: none of its cells, except perhaps the label, is a number."""
    cells = [cell.strip() for place, cell in enumerate(first) if place != label]
    # Tables without names for their features are often written with the headings 0, 1, 2, ..., label. The heading y
    # does not count here: it may be the answer yes in a sample.
    counted = any(cells == [str(k + start) for k in range(len(cells))] for start in (0, 1))
    if counted and first[label].strip().lower() in ("label", "target", "class"):
        return True
    if any(_is_float(cell) for cell in cells):
        return False
    return any(cell.lower() not in MISSING for cell in cells)


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# --- LIBSVM --------------------------------------------------------------------------------------------------------
def looks_like_libsvm(path: Path) -> bool:
    """Whether the first line with more than a label consists of a label and pairs index:value."""
    for line in lines_of(path):
        tokens = line.partition("#")[0].split()
        if len(tokens) > 1:
            return all(_PAIR.fullmatch(token) for token in tokens[1:])
    return False


class LibsvmLines:
    """The lines of a LIBSVM file that hold samples, checked one by one: a file, for scikit-learn's parser."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers = array("q")  # of the lines that were read
        self._last = ""

    def __iter__(self) -> Iterator[bytes]:
        for number, line in enumerate(lines_of(self._path), 1):
            text = line.partition("#")[0]
            if text.strip():
                self._last = text
                self._numbers.append(number)
                if not _SAMPLE.fullmatch(text):
                    raise self.complaint()
                yield text.encode()

    def read(self) -> bytes:
        """The whole content; the parser takes only objects that have this method."""
        return b"".join(self)

    def place(self, sample: int = -1) -> str:
        """The line of a sample; by default of the last one that was read."""
        return f"{self._path.name} line {self._numbers[sample]}"

    def complaint(self) -> InputError:
        """What is wrong with the last line."""
        label, *pairs = self._last.split()
        if finite_number(label) is None:
            return InputError(f"{self.place()}: the label {shown(label)} is not a number; {LIBSVM_LINE}")
        last = 0
        for pair in pairs:
            index, colon, value = pair.partition(":")
            if index == "qid" and colon:
                wrong = f"{shown(pair)} is for ranking, which is not supported; remove the qid tokens"
            elif not colon or not (index.isascii() and index.isdigit()):
                wrong = f"{shown(pair)} is not a pair index:value; {LIBSVM_LINE}"
            elif finite_number(value) is None:
                wrong = f"the value in {shown(pair)} is not a finite number"
            elif len(index) > 20 or int(index) > MAX_INDEX:  # a huge text takes long to become a number
                wrong = f"the index in {shown(pair)} is too large; indices up to {MAX_INDEX:,} are read"
            elif int(index) == 0:
                wrong = "index 0; indices of LIBSVM files start at 1"
            elif int(index) <= last:
                wrong = f"index {int(index)} follows index {last}; indices must increase in a line"
            else:
                last = int(index)
                continue
            return InputError(f"{self.place()}: {wrong}")
        return InputError(f"{self.place()}: cannot be read; {LIBSVM_LINE}")
