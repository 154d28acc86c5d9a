"""CSV files: records of any file, and rows written so that spreadsheets show them as they are."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from blocc.errors import BloccError


def csv_records(
    lines: Iterable[str], name: str, error: type[BloccError], delimiter: str = ","
) -> Iterator[tuple[int, list[str]]]:
    """Records with the line where each begins; quoted cells may span lines, and records without text are skipped.

    :param lines: of the file called ``name``, with their line ends
    """
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    line = 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as reason:
        raise error(f"{name} line {line}: not CSV as it should be: {reason}") from None


def table_rows(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Columns of equal length, by their headings, as rows; what stood in arrays becomes Python's own values."""
    lists = [values.tolist() if hasattr(values, "tolist") else values for values in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]


def csv_bytes(rows: Sequence[Mapping[str, Any]], headings: Iterable[str] = (), *, guarded: bool = True) -> bytes:
    """Rows as the content of a CSV file.

    :param headings: the columns; by default every key of every row, and what a row lacks stays empty
    :param guarded: write cells by :func:`cell_text`, for spreadsheets; otherwise every text as it is, for programs
    """
    columns = list(headings) or list(dict.fromkeys(key for row in rows for key in row))
    table: list[list[Any]] = [columns, *([row.get(column) for column in columns] for row in rows)] if columns else []
    if guarded:
        table = [[cell_text(cell) for cell in cells] for cells in table]
    stream = io.StringIO(newline="")
    # Python quotes a cell with a line feed, but not one with a carriage return alone, which would begin a new row.
    strange = any("\r" in cell for cells in table for cell in cells if isinstance(cell, str))
    writer = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL if strange else csv.QUOTE_MINIMAL)
    writer.writerows(table)
    return stream.getvalue().encode(errors="replace")


def cell_text(value: Any) -> Any:
    """A cell of a report: what is not finite stays empty, and no text is a formula.

    A spreadsheet computes a cell that begins with one of these characters, whoever wrote it. An apostrophe in front
    makes it show the text instead. Numbers stay numbers; the JSON files keep every text as it is.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return ""
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n") if "\r" in value else value
    return f"'{text}" if text.lstrip()[:1] in ("=", "+", "-", "@") and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
