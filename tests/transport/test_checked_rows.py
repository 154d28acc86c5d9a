"""Cells from outside: what counts as an id and as a number."""

from __future__ import annotations

import math
from typing import Any

import pytest

from blocc.networks.checked_rows import finite, identifier


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
