"""The site: built strictly, without a link that leads nowhere, and looked at in a real browser."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import blocc
from blocc.methods import Demand
from blocc.methods.registry import METHODS, SAMPLED
from browser import look, needs_browser

ROOT = Path(__file__).parents[1]
pytest.importorskip("mkdocs")


class Links(HTMLParser):
    """Where a page leads, what it loads, and the places that others can lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.leads: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.places |= {found.get("id", ""), found.get("name", "")}
        if tag == "a" and "href" in found:
            self.leads.append(found["href"])
        elif tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(found["href"])
        elif tag in ("script", "img", "iframe", "source", "video") and "src" in found:
            self.loads.append(found["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    settings = {"PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    return {path: Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_no_link_of_the_site_leads_nowhere(pages: dict[Path, Links]) -> None:
    wrong = []
    for path, links in pages.items():
        for link in links.leads + links.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                wrong.append(f"{path.name}: {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
                wrong.append(f"{path.name}: {link} (no such place)")
    assert wrong == []


def test_no_page_loads_anything_from_the_network(pages: dict[Path, Links]) -> None:
    foreign = {f"{path.name}: {link}" for path, links in pages.items() for link in links.loads if "://" in link}
    assert foreign == set()


def test_the_reference_is_made_from_docstrings(site: Path) -> None:
    text = (site / "api" / "blocc.html").read_text(encoding="utf-8")
    for name in set(blocc.__all__) - {"__version__"}:
        assert re.search(rf'id="blocc\.[\w.]*\b{name}"', text), f"the API reference lacks {name}"
    assert "What a user writes" not in text  # modules are not shown
    assert ":class:" not in text
    methods = (site / "api" / "blocc-methods.html").read_text(encoding="utf-8")
    assert all(demand.value in methods for demand in Demand)
    assert "f(x, y) at the follower" in text or "the follower's answer at x, re-solved exactly" in text


def test_the_reference_tells_how_to_cite_every_method(site: Path) -> None:
    text = (site / "api" / "blocc-methods.html").read_text(encoding="utf-8")
    for name, kind in {**METHODS, **SAMPLED}.items():
        (key,) = re.findall(r"@\w+\{(\w+),", kind.__doc__ or "")
        assert f"{{{key}," in text, f"the API reference does not cite {name}"
        assert html.escape(kind.title, quote=False) in text
    assert "{jiang2024primal," in (site / "api" / "blocc.html").read_text(encoding="utf-8")


def test_every_page_can_be_reached(site: Path, pages: dict[Path, Links]) -> None:
    start = pages[site / "index.html"].leads
    for path in (ROOT / "docs").glob("*.md"):
        assert f"{path.stem}.html" in start or path.stem == "index", f"no way from the start page to {path.name}"


def test_the_navigation_lists_no_page_twice(site: Path) -> None:
    listed = re.findall(r"^ +- ([\w-]+\.md)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert "how-to.md" in listed
    assert sorted(listed) == sorted(set(listed))
    text = (site / "index.html").read_text(encoding="utf-8")
    sidebar = re.findall(r'<a href="([\w/-]+\.html)" class="md-nav__link"', text)
    assert "how-to.html" in sidebar
    assert sorted(sidebar) == sorted(set(sidebar))


@needs_browser
def test_the_start_page_and_its_search_work_from_the_disk(site: Path, tmp_path: Path) -> None:
    seen = look(f"{(site / 'index.html').as_uri()}?q=complementarity", tmp_path)
    assert seen.console == []
    assert seen.requests == []
    assert "bilevel" in seen.document
    assert len(re.findall(r'class="md-search-result__item"', seen.document)) >= 3
    assert len({tuple(colour) for colour in seen.picture[::20, ::20].reshape(-1, 3)}) > 10


@needs_browser
def test_a_page_of_the_gallery_shows_formula_picture_and_result(site: Path, tmp_path: Path) -> None:
    seen = look((site / "gallery" / "landscape.html").as_uri(), tmp_path)
    assert seen.console == []
    assert seen.requests == []
    assert "<math" in seen.document
    assert "arithmatex" not in seen.document
    assert "converged" in seen.document
    assert seen.picture.std() > 10


@needs_browser
@pytest.mark.parametrize("page", ["index.html", "statuses.html", "gallery/index.html"])
def test_pages_fit_a_phone(site: Path, tmp_path: Path, page: str) -> None:
    """Text and tables stay within the width: only what scrolls by itself may be wider."""
    frame = f"""<body style="margin:0"><iframe id="phone" width="390" height="800" src="{(site / page).as_uri()}">
        </iframe><p id="width"></p><script>
        document.getElementById("phone").onload = event => {{
          document.getElementById("width").textContent =
            "width " + event.target.contentDocument.documentElement.scrollWidth;
        }};</script></body>"""
    (tmp_path / "phone.html").write_text(frame, encoding="utf-8")
    seen = look((tmp_path / "phone.html").as_uri(), tmp_path, 600, 900)
    assert "width 390" in seen.document
    assert seen.requests == []
