"""The gallery: every example is short, still prints what its page shows, and its page follows the template."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from test_docs import assert_same_output

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import gallery  # noqa: E402

FILES = sorted((ROOT / "examples" / "gallery").glob("*.py"))
#: Those that take a second or two; `make test-slow` runs the others.
QUICK = ("own_oracle",)
#: What depends on the machine, beside seconds.
VARYING = re.compile(r"platform: .*|\d+ (starts|paths)\b")


def test_there_are_fourteen_and_each_has_a_page() -> None:
    names = {path.stem for path in FILES}
    assert len(names) >= 14
    assert set(gallery.ORDER) == names
    for name in names:
        for suffix in (".md", ".png", "-small.png"):
            assert (ROOT / "docs" / "gallery" / f"{name}{suffix}").is_file(), f"make gallery NAME={name}"
    assert (ROOT / "docs" / "gallery" / "index.md").read_text(encoding="utf-8") == gallery.index()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_template_is_followed(path: Path) -> None:
    example = gallery.read(path)
    first = [line for line in example.cells[0].code.splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(first) <= gallery.MOST_LINES, f"{len(first)} lines of code"
    assert [cell.title for cell in example.cells] == ["", "Check", "Picture", "What breaks"]
    assert example.question.endswith("?")
    assert re.search(r"^\| leader", example.about, flags=re.MULTILINE)
    assert re.search(r"^\| follower", example.about, flags=re.MULTILINE)
    assert "$$" in example.about
    assert all(cell.text for cell in example.cells[1:])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_pages_show_the_code_of_their_files(path: Path) -> None:
    page = (ROOT / "docs" / "gallery" / f"{path.stem}.md").read_text(encoding="utf-8")
    example = gallery.read(path)
    for cell in example.cells:
        if cell.title != "Picture":
            assert cell.code in page, f"make gallery NAME={path.stem}"
    assert example.about in page


@pytest.mark.parametrize(
    "path",
    [path if path.stem in QUICK else pytest.param(path, marks=pytest.mark.slow) for path in FILES],
    ids=lambda path: path.stem,
)
def test_examples_print_what_their_pages_show(path: Path) -> None:
    example = gallery.read(path)
    left = gallery.run(path, example)
    assert left["figure"].get_axes()
    page = (ROOT / "docs" / "gallery" / f"{path.stem}.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```text\n(.*?)\n```", page, flags=re.MULTILINE | re.DOTALL)
    printed = [cell.printed for cell in example.cells if cell.printed and cell.title != "Picture"]
    assert len(shown) == len(printed)
    for one, other in zip(shown, printed, strict=True):
        assert_same_output(VARYING.sub("", one), VARYING.sub("", other), path.stem)
