"""CSV: records with their lines, rows that spreadsheets show as they are, and no cell that is a formula."""

from __future__ import annotations

import csv
import io

import pytest

from blocc._lib.tables import cell_text, csv_bytes, csv_records
from blocc.errors import BloccError

FORMULAS = ("=cmd|' /C calc'!A0", "+1+cmd|x", "-2+3+cmd|' /C calc'!A0", "@SUM(1)", "\t=1+1", " =1+1", "\r=1+1")


def read(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode(), newline="")))


def test_records_know_their_lines() -> None:
    text = 'a;b\r\n\r\n"over\r\ntwo";1\r\n;\r\nend;2'
    records = list(csv_records(io.StringIO(text, newline=""), "file.csv", BloccError, ";"))
    assert records == [(1, ["a", "b"]), (3, ["over\r\ntwo", "1"]), (6, ["end", "2"])]


def test_broken_records_are_named() -> None:
    with pytest.raises(BloccError, match=r"file\.csv line 2: not CSV"):
        list(csv_records(["a,b\n", '"x"y,1\n'], "file.csv", BloccError))


def test_rows_whose_headings_differ() -> None:
    assert csv_bytes([{"a": 1}, {"b": float("nan")}]) == b"a,b\n1,\n,\n"
    assert csv_bytes([{"a": 1, "b": 2}], ["b"]) == b"b\n2\n"
    assert csv_bytes([]) == b""
    assert csv_bytes([], ["a", "b"]) == b"a,b\n"


@pytest.mark.parametrize("text", [*FORMULAS, "a\r=1", "x\ny", 'quote " and , comma'])
def test_unguarded_text_comes_back_as_it_was(text: str) -> None:
    assert read(csv_bytes([{"a": text, "b": 1}], guarded=False)) == [["a", "b"], [text, "1"]]


@pytest.mark.parametrize("text", FORMULAS)
def test_no_guarded_cell_is_a_formula(text: str) -> None:
    assert cell_text(text) == "'" + text.replace("\r", "\n")
    ((heading,), (cell,)) = read(csv_bytes([{text: text}]))
    assert heading.startswith("'")
    assert cell.startswith("'")


@pytest.mark.parametrize("value", ["-1.5", "+3", "-1e-3", "-inf", "name", "a=b", "", -2.0, -3, None, True, "'=x"])
def test_numbers_and_plain_words_stay_as_they_are(value: object) -> None:
    assert cell_text(value) is value


def test_a_carriage_return_begins_no_row() -> None:
    assert len(read(csv_bytes([{"a": "a\r=1+1"}]))) == 2
