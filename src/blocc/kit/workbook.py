"""Tables as a workbook for spreadsheets (Office Open XML): one sheet each, numbers as numbers, words as words."""

from __future__ import annotations

import io
import math
import re
import zipfile
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_KIND = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
#: What XML cannot hold: control characters, and halves of surrogate pairs.
_IMPOSSIBLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LONGEST = 32_767  #: characters of a cell
_MOST_ROWS = 1_048_575  #: of a sheet, below its headings
#: Of every archive alike, so that the same tables give the same bytes.
_DATE = (2000, 1, 1, 0, 0, 0)


def workbook_bytes(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> bytes:
    """The content of an .xlsx file with one sheet for each table; columns are the keys of all its rows."""
    names = list(tables)
    sheets = "".join(f'<sheet name="{escape(name)}" sheetId="{k}" r:id="r{k}"/>' for k, name in enumerate(names, 1))
    parts = "".join(
        f'<Override PartName="/xl/worksheets/sheet{k}.xml" ContentType="{_KIND}.worksheet+xml"/>'
        for k in range(1, len(names) + 1)
    )
    links = "".join(
        f'<Relationship Id="r{k}" Type="{_OFFICE}/worksheet" Target="worksheets/sheet{k}.xml"/>'
        for k in range(1, len(names) + 1)
    )
    files = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_KIND}.sheet.main+xml"/>{parts}</Types>',
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r1" '
        f'Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>{sheets}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">{links}</Relationships>',
    }
    for k, rows in enumerate(tables.values(), 1):
        files[f"xl/worksheets/sheet{k}.xml"] = _sheet(rows)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, _DATE), (_HEAD + text).encode(), zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def _sheet(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [_row(columns), *(_row([row.get(column) for column in columns]) for row in rows[:_MOST_ROWS])]
    return f'<worksheet xmlns="{_MAIN}"><sheetData>{"".join(lines)}</sheetData></worksheet>'


def _row(cells: Sequence[Any]) -> str:
    return "<row>" + "".join(map(_cell, cells)) + "</row>"


def _cell(value: Any) -> str:
    """A number, a truth or a text; text is never a formula here."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "<c/>"
    if isinstance(value, bool):
        return f'<c t="b"><v>{int(value)}</v></c>'
    if isinstance(value, int | float):
        return f"<c><v>{value!r}</v></c>"
    text = escape(_IMPOSSIBLE.sub("\ufffd", str(value))[:_LONGEST])
    return f'<c t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>'
