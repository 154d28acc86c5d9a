"""The document of a design: its pages, and what they say."""

from __future__ import annotations

import re
import zlib
from dataclasses import replace

import numpy as np
import pytest

from blocc.kit.figure import RED
from blocc.report.transport.design_pdf import report_pages, report_pdf
from blocc.transport.design.design_result import Design
from transport_designs import fake_design, large_network, one_market, small_network

ASSUMPTIONS = ("Dropped: demand of 12 within zones.", "Filled in: alternative times, 1.5 times the fastest path.")


def words(design: Design) -> list[str]:
    """All texts of all pages, one page a string."""
    return ["\n".join(text.get_text() for text in page.texts) for page in report_pages(design)]


def printed(document: bytes) -> str:
    """The text of a PDF file: the strings that its streams draw, without the spacing between them."""
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", document, flags=re.DOTALL)
    content = b""
    for stream in streams:
        try:
            content += zlib.decompress(stream)
        except zlib.error:  # a font
            continue
    drawn = re.findall(rb"\nBT\n(.*?)\nET\n", content, flags=re.DOTALL)
    pieces = [b"".join(re.findall(rb"\(((?:\\.|[^()\\])*)\)", block)) for block in drawn]
    return b"\n".join(pieces).decode("latin-1")


def test_file_has_pages_and_says_what_was_assumed() -> None:
    design = fake_design(replace(small_network(), assumptions=ASSUMPTIONS))
    document = report_pdf(design)
    pages = report_pages(design)
    assert len(re.findall(rb"/Type /Page\b", document)) == len(pages) == 7
    assert {tuple(np.round(page.get_size_inches(), 2)) for page in pages} == {(11.69, 8.27)}
    said = printed(document)
    for expected in (*ASSUMPTIONS, "Four stations", "63.413", "page 7 of 7", "pass: travellers: feasibility 3.0e"):
        assert expected in said


def test_first_page_and_tables() -> None:
    design = fake_design()
    first, *charts_and_tables, proof = words(design)
    tables = "\n".join(charts_and_tables)
    for expected in ("Four stations", "converged", design.message, "Certificate: 5 checks pass.", "88.4 %", "63.413"):
        assert expected in first
    busiest = int(np.argmax(design.follower.flow))
    assert "Busiest links" in tables
    assert f"{design.follower.flow[busiest]:.2f}" in tables
    assert "Most valuable links" in tables
    assert "Markets with the largest demand" in tables
    assert "every figure is the file" in proof


def test_failed_certificate_looks_failed() -> None:
    design = fake_design(lower_level_error=1.0)
    first, *others, proof = words(design)
    assert "FAILED: travellers: stationarity" in first
    assert "not certified" in first
    assert not any("Busiest links" in page for page in others)
    assert "FAIL: travellers: stationarity" in proof
    red = [text for text in report_pages(design)[-1].texts if text.get_color() == RED]
    assert [text.get_text().partition(" ")[0] for text in red] == ["FAIL:"] * 3


def test_long_lists_go_on_and_large_networks_say_what_is_left_out() -> None:
    design = fake_design(replace(large_network(6), assumptions=tuple(f"Assumed: {k}." for k in range(80))))
    pages = words(design)
    together = "\n".join(pages)
    assert "certificate and assumptions, continued" in pages[-1]
    assert all(f"Assumed: {k}." in together for k in range(80))
    assert "Markets with the largest demand (25 of 1,260)" in together
    for page in report_pages(design):
        assert all(0.0 < text.get_position()[1] < 1.0 for text in page.texts)


@pytest.mark.slow
@pytest.mark.parametrize(
    "design",
    [fake_design(build=False), fake_design(one_market(0.0), iterations=0, starts=(), settings={}, seconds={})],
    ids=["nothing built", "no demand"],
)
def test_odd_designs(design: Design) -> None:
    assert report_pdf(design)[:5] == b"%PDF-"
