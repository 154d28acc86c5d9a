"""docs/reproduce.md against the command: what runs in a minute is computed again and compared."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from paper_rows import quick_rows

from blocc.report.study.study_views import Findings, Observation, Table
from reproduction import command, page
from reproduction.item import Item, Shown
from reproduction.items import NAMES, load_items

TEXT = page.PAGE.read_text(encoding="utf-8")
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*\.?\d*(?:e[+-]?\d+)?")
#: Figures of another machine may differ by rounding; what is below the second is rounding itself.
CLOSE, ROUNDING = 0.01, 1e-9


def made_up(**given: object) -> Item:
    item = Item("first", "The first", lambda quick: [], lambda rows: findings(), (1.0, 1.0))
    return replace(item, shown=(Shown(0, {"long name": "Short"}, lambda row: row["kept"]),), **given)


def findings() -> Findings:
    rows = [{"long name": "1.5", "kept": True, "other": "2"}, {"long name": "9", "kept": False, "other": "2"}]
    seen = [
        Observation("It holds", True, "1 to 2", "the paper, Table 9; we say more"),
        Observation("Nobody knows", None, "3 to 4", "the paper, Table 8"),
        Observation("it shrinks", False, "5 [4, 6] to 6", "our statement"),
        Observation("so does this", True, "1", "the paper, Table 9"),
        Observation("and this", True, "1", "our statement"),
    ]
    return Findings([Table("Values", rows)], seen)


def test_a_block_shows_what_the_item_chooses() -> None:
    text = page.block(made_up(), findings(), quick=True)
    assert "Reduced size (`--quick`)." in text
    assert "Reduced" not in page.block(made_up(), findings(), quick=False)
    assert "Short" in text
    assert "1.5" in text
    assert "other" not in text
    assert "| 9" not in text
    assert "- **Holds**: Table 9 (2 statements)." in text
    assert "- **Does not hold**: Our statement: it shrinks (5 to 6)." in text
    assert "- **Inconclusive**: Table 8." in text


def test_only_the_blocks_of_the_run_are_written() -> None:
    before = "a\n<!-- first -->\nancient\n<!-- /first -->\nb\n"
    after = page.with_blocks(before, {"first": page.block(made_up(), findings(), quick=False)})
    assert "ancient" not in after
    assert after.startswith("a\n<!-- first")
    assert after.endswith("<!-- /first -->\nb\n")
    again = page.with_blocks(after, {"first": page.block(made_up(), findings(), quick=False)})
    assert again == after
    with pytest.raises(ValueError, match="marks of second once"):
        page.with_blocks(before, {"second": ""})


def test_the_page_shows_every_item() -> None:
    shown = page.blocks_of(TEXT, NAMES)
    assert set(shown) == set(NAMES)
    assert all("- **" in text for text in shown.values())


def differences(page_text: str, computed: str) -> list[str]:
    """Lines that differ in words, or in a number by more than rounding."""
    lines, others = page_text.splitlines(), computed.splitlines()
    if len(lines) != len(others):
        return [f"{len(lines)} lines and {len(others)}"]
    found = []
    for one, other in zip(lines, others, strict=True):
        words = [re.sub(r"[\s|:-]+", " ", NUMBER.sub("#", line)) for line in (one, other)]
        numbers = [[float(number.replace(",", "")) for number in NUMBER.findall(line)] for line in (one, other)]
        same = words[0] == words[1] and len(numbers[0]) == len(numbers[1])
        close = same and all(
            abs(a - b) <= CLOSE * max(abs(a), abs(b)) + ROUNDING for a, b in zip(*numbers, strict=True)
        )
        found += [] if close else [f"{one!r} and {other!r}"]
    return found


def test_the_comparison_sees_what_differs() -> None:
    assert not differences("a | 1.000 | 1e-15", "a | 1.004 | 3e-14")
    assert differences("a | 1.00", "a | 1.05")
    assert differences("a holds", "a does not hold")
    assert differences("a\nb", "a")


@pytest.mark.parametrize(
    "name",
    [
        "gradient_of_v",
        pytest.param("networks", marks=pytest.mark.slow),
        pytest.param("assumptions", marks=pytest.mark.slow),
        pytest.param("toy_surface", marks=pytest.mark.slow),
    ],
)
def test_the_page_says_what_the_command_says(name: str) -> None:
    item = load_items()[0][name]
    full = replace(item, studies=lambda quick: item.studies(False))
    computed = page.block(item, item.conclude(quick_rows(full)), quick=False)
    assert not differences(page.blocks_of(TEXT, NAMES)[name], computed)


def test_the_command_writes_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    item = load_items()[0]["gradient_of_v"]
    target = tmp_path / "page.md"
    target.write_text("\n".join(page.marks("gradient_of_v")))
    monkeypatch.setattr(page, "PAGE", target)
    monkeypatch.setattr(command, "load_items", lambda: ({"gradient_of_v": item}, {}))
    out = str(tmp_path / "run")
    assert command.main(["--quick", "--write-docs", "--out", out]) == 0
    assert "Reduced size" in target.read_text()
    assert f"written: {target}" in capsys.readouterr().out
