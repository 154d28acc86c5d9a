"""Cells from outside: what counts as an id and as a number."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocc.networks.checked_rows import PLACE, Table, finite, identifier, is_blank, raise_if_any


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, 7),
        ("7", 7),
        (" 7 ", 7),
        ("-7", -7),
        (7.0, 7),
        ("7.0", "7.0"),
        ("007", "007"),
        ("-0", "-0"),
        ("A 1", "A 1"),
        ("9" * 5000, "9" * 5000),
        ("", None),
        ("  ", None),
        (None, None),
        (True, None),
        (7.5, None),
        (math.nan, None),
        ([1], None),
        ({}, None),
    ],
)
def test_identifiers(value: Any, expected: Any) -> None:
    assert identifier(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, 1.0), ("1e3", 1000.0), (" 2 ", 2.0), ("nan", None), ("inf", None), ("1_0", None), (None, None), (False, None)],
)
def test_finite_numbers(value: Any, expected: float | None) -> None:
    assert finite(value) == expected


def test_blank_cells() -> None:
    assert is_blank(None)
    assert is_blank(" ")
    assert not is_blank(0)


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers())))
@settings(max_examples=40)
def test_no_cell_raises(value: Any) -> None:
    table = Table("links", [{"time": value}])
    assert math.isfinite(table.number(0, "time"))
    identifier(value)


def test_complaints_stand_in_the_order_of_rows() -> None:
    table = Table("links", [{"time": "x", PLACE: "first"}, {"time": -1}])
    table.numbers(("time",), least=0.0)
    table.at_least(5)
    assert table.lines() == [
        "links: needs at least 5 rows, has 2",
        "first: time 'x' is not a finite number",
        "links row 2: time -1 is below 0",
    ]
    with pytest.raises(ValueError, match="3 entries are wrong"):
        raise_if_any("town", (table,))
