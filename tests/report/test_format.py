"""Numbers, names and values as text for people."""

from __future__ import annotations

import math

import pytest

from blocc.kit.text import (
    Spread,
    aligned,
    decimals,
    duration,
    is_numeric,
    markdown_table,
    markdown_text,
    number,
    number_of,
    percent,
    shortened,
    sort_key,
    value_text,
)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0"),
        (46, "46"),
        (1234567.8, "1,234,568"),
        (-355.72, "−355.7"),
        (0.25, "0.25"),
        (2e-9, "2.0e-9"),
        (math.nan, "–"),
        (math.inf, "∞"),
        (None, "–"),
    ],
)
def test_numbers(value: object, words: str) -> None:
    assert number(value) == words


def test_numbers_of_a_column_share_their_decimals() -> None:
    assert decimals([12.3456, 1.0, math.nan], 4) == 2
    assert decimals([3.0, 1200.0], 4) == 0
    assert [aligned(value, 2) for value in (12.3456, -1.0, 1e-9, math.nan)] == ["12.35", "−1.00", "1.0e-9", "–"]


def test_parts_and_times() -> None:
    assert [percent(part) for part in (0.5, 0.123, None, math.nan)] == ["50 %", "12.3 %", "–", "–"]
    assert percent(0.5, 2) == "50.00 %"
    assert [duration(seconds) for seconds in (0.25, 150.0, 9000.0)] == ["0.25 s", "2.5 min", "2.5 h"]


def test_long_names_keep_both_ends() -> None:
    assert shortened("short") == "short"
    assert shortened("Station number 12 of the northern line", 20) == "Station numbe…n line"
    assert shortened("a\x07\u202eb") == "a b"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, ""),
        (True, "yes"),
        (7, "7"),
        (0.123456789, "0.12346"),
        ("as it is", "as it is"),
        (Spread(1.5, 0.25, 3), "1.5 ± 0.25"),
        (Spread(1.5, 0.0, 1), "1.5"),
        ([1.0, None], "[1, –]"),
        (list(range(10)), "[0, 1, 2, 3, 4, 5, 6, 7, … 10 in all]"),
        ({"a": 1}, '{"a": 1}'),
    ],
)
def test_values(value: object, words: str) -> None:
    assert value_text(value) == words


def test_numbers_are_found_in_words() -> None:
    assert number_of("1,250.5 ± 0.012") == 1250.5
    assert number_of("0.5 s") is None
    assert number_of(True) is None
    assert is_numeric([{"a": 1}, {"a": "–"}, {}], "a")
    assert not is_numeric([{"a": 1}, {"a": "one"}], "a")
    assert [sort_key(value) for value in (1.0, -math.inf, math.nan, None)] == ["1", "-Infinity", "", ""]


def test_markdown() -> None:
    text = markdown_table(["a|b", "c"], [["x\ny", "<1"]], [False, True])
    assert text == "| a\\|b | c |\n| --- | ---: |\n| x y | &lt;1 |\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("![x](http://a)", "!\\[x\\](http\\://a)"),
        ("*a* `b` ~c~ _d_ snake_case", "\\*a\\* \\`b\\` \\~c\\~ \\_d\\_ snake_case"),
        ("# one", "\\# one"),
        ("12. one", "12\\. one"),
        ("- one", "\\- one"),
        ("-1.5e-3 ± 0.2", "-1.5e-3 ± 0.2"),
        ("&lt;b> $x^2$", "&amp;lt;b> \\$x\\^2\\$"),
    ],
)
def test_words_stay_words_in_markdown(words: str, text: str) -> None:
    assert markdown_text(words) == text
