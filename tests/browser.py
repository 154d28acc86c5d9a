"""A page as a parser reads it, and in a real browser: its console, its requests, and how it looks."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

needs_browser = pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")


class Page(HTMLParser):
    """Tags with their attributes, all words, and the text of scripts of data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.data: dict[str, str] = {}
        self.words: list[str] = []
        self._into: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        self._into = found.get("id") if found.get("type") == "application/json" else None

    def handle_endtag(self, tag: str) -> None:
        self._into = None

    def handle_data(self, data: str) -> None:
        if self._into:
            self.data[self._into] = self.data.get(self._into, "") + data
        else:
            self.words.append(data)

    def figure(self, name: str) -> dict[str, Any]:
        """The data of a chart."""
        return json.loads(self.data[f"{name}-data"])

    def values(self, attribute: str) -> list[str | None]:
        """Of an attribute, wherever it stands."""
        return [attributes[attribute] for _, attributes in self.tags if attribute in attributes]

    def count(self, tag: str) -> int:
        """How many elements of this kind there are."""
        return [name for name, _ in self.tags].count(tag)

    def foreign(self) -> list[str]:
        """Elements and attributes that could run a script or reach out, which no page has."""
        wrong = [f"<{tag}>" for tag, _ in self.tags if tag in ("iframe", "object", "embed", "form", "base", "link")]
        for tag, attributes in self.tags:
            for name, value in attributes.items():
                if name.startswith("on") or (value or "").strip().lower().startswith("javascript:"):
                    wrong.append(f"<{tag} {name}={value}>")
        return wrong


class Visit(NamedTuple):
    """What a browser did with a page."""

    console: list[str]
    requests: list[str]
    picture: np.ndarray
    document: str  #: as it is after scripts have run


def visit(text: str, folder: Path, *, dark: bool = False) -> Visit:
    """Open a page with Chromium, from a file in ``folder``; ``dark``: for a reader who prefers dark pages."""
    page = folder / "page.html"
    page.write_text(text, encoding="utf-8")
    seen = look(page.as_uri(), folder, dark=dark)
    # The browser's clock runs ahead while another thread unpacks the charts: on a busy machine it may end too early.
    for _ in range(4):
        if 'id="plotly"' not in text or "js-plotly-plot" in seen.document:
            break
        seen = look(page.as_uri(), folder, dark=dark)
    return seen


def look(address: str, folder: Path, width: int = 1200, height: int = 1600, *, dark: bool = False) -> Visit:
    """Open an address of the disk with Chromium, which keeps its files in ``folder``."""
    picture, log = folder / "page.png", folder / "net.json"
    command = [
        "chromium",
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--hide-scrollbars",
        "--allow-file-access-from-files",  # a page in a frame of another can be measured
        "--enable-logging=stderr",
        "--virtual-time-budget=8000",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        f"--window-size={width},{height}",
        f"--user-data-dir={folder / 'profile'}",
        f"--screenshot={picture}",
        "--dump-dom",
        f"--log-net-log={log}",
        address,
    ]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    image = pytest.importorskip("PIL.Image").open(io.BytesIO(picture.read_bytes())).convert("RGB")
    # A browser that ends at once may cut the log short, so it is read line by line. Requests of a page from the disk
    # are filed under file://, the browser's own errands (updates, dictionaries) are not.
    events = log.read_text(encoding="utf-8", errors="replace").splitlines()
    asked = [event for event in events if '"network_isolation_key":"file://' in event]
    urls = [re.search(r'"url":"((?:https?|wss?)://[^"]*)"', event) for event in asked]
    return Visit(
        [line for line in done.stderr.splitlines() if "CONSOLE" in line],
        [url[1] for url in urls if url],
        np.asarray(image, dtype=int),
        done.stdout,
    )
