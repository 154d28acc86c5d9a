"""What Jupyter shows, found out by executing a notebook: cards, pictures without magic, a live line, the log."""

from __future__ import annotations

import re
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
from nbformat.v4 import new_code_cell, new_notebook  # noqa: E402

CELLS = {
    "problem": """
from blocc import BilevelProblem, Box, Reals, compare, solve, solve_many
from blocc.report.progress import ProgressLine
ProgressLine.patience = 0.0
problem = BilevelProblem(
    upper=lambda x, y: (x - 3) ** 2 + (y - 1) ** 2, lower=lambda x, y: (y - 2 * x) ** 2,
    inequality=lambda x, y: y - x, x_set=Box(0.0, 3.0), y_set=Reals(), name="<capacity>",
)
problem
""",
    "result": "result = solve(problem)\nresult",
    "picture": "result.plot()",
    "many": "many = solve_many(problem, starts=3)\nmany",
    "starts": "many.plot()",
    "comparison": "compare(problem, methods=['blocc'])",
    "check": "problem.check()",
    "design": """
from blocc.transport import design_network, read_network
design = design_network(read_network("three"), starts=1)
design
""",
    "map": "design.plot()",
}


@pytest.fixture(scope="module")
def outputs() -> dict[str, list[Any]]:
    """What each cell puts out."""
    cells = [new_code_cell(text) for text in CELLS.values()]
    client = nbclient.NotebookClient(new_notebook(cells=cells), timeout=150, kernel_name="python3")
    client.execute()
    return dict(zip(CELLS, (cell.outputs for cell in cells), strict=True))


def shown(outputs: list[Any], kind: str) -> str:
    """The value of a cell in this form."""
    (value,) = [output for output in outputs if output.output_type == "execute_result"]
    assert kind in value.data, f"shown only as {sorted(value.data)}"
    return value.data[kind]


def test_every_answer_is_a_card(outputs: dict[str, list[Any]]) -> None:
    words = {
        "problem": "follower answers",
        "result": "stationarity",
        "many": "3 starts",
        "comparison": "f at exact y",
        "check": "strict complementarity",
        "design": "travellers",
    }
    for name, part in words.items():
        html = shown(outputs[name], "text/html")
        assert part in html
        assert html.startswith("<div")
        assert not re.search(r"<(script|link|style|iframe)", html)


def test_names_of_problems_cannot_become_tags(outputs: dict[str, list[Any]]) -> None:
    for name in ("problem", "result", "comparison"):
        html = shown(outputs[name], "text/html")
        assert "&lt;capacity&gt;" in html
        assert "<capacity>" not in html


def test_a_comparison_scrolls(outputs: dict[str, list[Any]]) -> None:
    html = shown(outputs["comparison"], "text/html")
    assert "overflow-x:auto" in html
    assert "anywhere" not in html.partition("<table")[2].partition("</table>")[0]


def test_a_result_shows_its_curve_with_words(outputs: dict[str, list[Any]]) -> None:
    html = shown(outputs["result"], "text/html")
    assert re.search(r'<svg role="img" aria-label="upper value of each iteration: from \S+ to \S+"', html)
    assert "converged</span>" in html


def test_pictures_need_no_magic(outputs: dict[str, list[Any]]) -> None:
    for name in ("picture", "starts", "map"):
        assert shown(outputs[name], "image/png").startswith("iVBOR")  # what every PNG begins with


def test_progress_is_live_and_leaves_no_line(outputs: dict[str, list[Any]]) -> None:
    lines = [output for output in outputs["result"] if output.output_type == "display_data"]
    assert len(lines) == 1  # one place, renewed
    assert lines[0].data["text/plain"] == ""  # and empty at the end
    assert not [output for output in outputs["result"] if output.output_type == "stream"]
