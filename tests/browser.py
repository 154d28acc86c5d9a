"""A page in a real browser: what it says on its console, whom it asks, and how it looks."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

needs_browser = pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")


class Visit(NamedTuple):
    """What a browser did with a page."""

    console: list[str]
    requests: list[str]
    picture: np.ndarray


def visit(text: str, folder: Path) -> Visit:
    """Open a page with Chromium, from a file in ``folder``."""
    page, picture, log = folder / "page.html", folder / "page.png", folder / "net.json"
    page.write_text(text, encoding="utf-8")
    command = [
        "chromium",
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--hide-scrollbars",
        "--enable-logging=stderr",
        "--virtual-time-budget=8000",
        "--window-size=1200,1600",
        f"--user-data-dir={folder / 'profile'}",
        f"--screenshot={picture}",
        f"--log-net-log={log}",
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60)
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
    )
