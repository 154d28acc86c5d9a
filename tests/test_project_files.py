"""CITATION.cff parses, has what the format requires and names this version; CONTRIBUTING.md names files that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import blocc
from blocc.methods.registry import METHODS

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def citation() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")  # comes with Dask
    return yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_cited_software(citation: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] == "software"
    assert str(citation["version"]) == project["version"] == blocc.__version__
    assert citation["license"] == project["license"]


def test_cited_paper(citation: dict[str, Any]) -> None:
    paper = citation["preferred-citation"]
    assert {"type", "title", "authors"} <= set(paper)
    names = [author["family-names"] for author in paper["authors"]]
    assert names == ["Jiang", "Xiao", "Tenorio", "Real-Rojas", "Marques", "Chen"]
    assert (paper["year"], paper["collection-title"]) == (2024, "Advances in Neural Information Processing Systems")
    assert paper["url"].endswith("2406.10148")


def entry(text: str | None) -> tuple[str, list[str], int]:
    """Title, family names and year of the BibTeX entry in a docstring."""
    words = " ".join((text or "").split())
    fields = dict(re.findall(r"(\w+) = \{((?:[^{}]|\{[^{}]*\})*)\}", words))
    title = re.sub(r"[{}]", "", fields["title"])
    names = [author.partition(",")[0].strip() for author in re.sub(r"[{}]", "", fields["author"]).split(" and ")]
    return title, names, int(fields["year"])


def cited(paper: dict[str, Any]) -> tuple[str, list[str], int]:
    return paper["title"], [author["family-names"] for author in paper["authors"]], paper["year"]


def test_every_method_is_cited_as_its_docstring_says(citation: dict[str, Any]) -> None:
    assert entry(blocc.solve.__doc__) == cited(citation["preferred-citation"])
    papers = [cited(paper) for paper in citation["references"] if paper["type"] in ("article", "conference-paper")]
    for kind in METHODS.values():
        assert entry(kind.__doc__) in papers, f"CITATION.cff lacks {kind.name}"
    assert len({title for title, _, _ in papers}) == len(papers)


def test_programs_are_cited_with_their_commits(citation: dict[str, Any]) -> None:
    programs = [one for one in citation["references"] if one["type"] == "software-code"]
    page = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    for program in programs:
        assert re.fullmatch(r"https://github\.com/[\w-]+/[\w-]+", program["repository-code"])
        assert re.fullmatch(r"[0-9a-f]{7}", str(program["commit"]))
    blocc_program = programs[0]
    assert str(blocc_program["commit"]) in page
    assert blocc_program["repository-code"] in page


def test_measured_exponents_stand_on_one_page_which_owns_up_to_its_clock() -> None:
    """Two tables of one command's exponents had come to differ, under a head that denied any verdict by the clock."""
    pages = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    header = re.compile(r"^\|.*(exponents?\b|[Pp]ower of d_y)", re.MULTILINE)
    tables = [name for name, text in pages.items() if header.search(text)]
    assert tables == ["reproduce.md"]
    assert "reproduce.md#complexity" in pages["methods.md"]
    head = " ".join(pages["reproduce.md"].partition("\n## ")[0].split())
    assert "[Complexity](#complexity) on processor time" in head


def test_the_release_has_the_date_of_the_changes(citation: dict[str, Any]) -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {citation['version']} ({citation['date-released']})\n" in changes


def test_files_that_contributors_are_sent_to_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = [word for word in re.findall(r"`([\w./]+)`", text) if word.endswith((".py", ".md", "/"))]
    named += re.findall(r"\]\(([\w./]+)", text)
    roots = (ROOT, ROOT / "src" / "blocc")
    missing = [name for name in named if "NAME" not in name and not any((root / name).exists() for root in roots)]
    assert len(named) > 20
    assert missing == []


def test_modules_of_tests_have_different_names() -> None:
    """pytest imports them by their names alone."""
    names = [path.name for folder in ("tests", "reproduction/tests") for path in (ROOT / folder).rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)
