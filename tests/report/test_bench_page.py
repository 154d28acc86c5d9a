"""Performance profiles by hand, and the page of the suite."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from blocc.report.study.bench_latex import paper_files
from blocc.report.study.benchmark import (
    bench_item,
    best_values,
    cost_of,
    costs,
    method_table,
    problem_table,
    profile,
    profile_rows,
    without_ways,
)
from blocc.report.study.study_page import study_page
from blocc.report.study.study_views import Report, StudyView
from blocc.studies.study import Study


def cell(problem: str, method: str, way: list[list[float]], known: float = math.nan, **further: Any) -> dict[str, Any]:
    row = {"applies": True, "outcome": "converged", "success": bool(way), "value": way[-1][2] if way else math.nan}
    row |= {"known": known, "calls": way[-1][1] if way else 0, "seconds": 1.0, "status": "done", "error": None}
    return {"problem": problem, "method": method, "seed": 0, "way": way, **row, **further}


@pytest.fixture(scope="module")
def view() -> StudyView:
    """Problem p has the known value 1; of q none is known."""
    study = Study(
        "bench", "math:sin", {"problem": ["p", "q"], "method": ["blocc", "gam", "mine"]}, fixed={"preset": "x"}
    )
    rows = [
        cell("p", "blocc", [[0.5, 10.0, 3.0], [1.0, 20.0, 1.0]], 1.0),
        cell("p", "gam", [[0.1, 30.0, 1.01], [4.0, 90.0, 1.0]], 1.0),
        cell("p", "mine", [], 1.0, applies=False, outcome="does not apply", success=False),
        cell("q", "blocc", [[2.0, 7.0, 0.0]]),
        cell("q", "gam", [[6.0, 7.0, 5.0]]),
        cell("q", "mine", [[1.0, 70.0, 0.0]]),
    ]
    return StudyView(study, rows)


def test_best_values(view: StudyView) -> None:
    assert best_values(view) == {"p": 1.0, "q": 0.0}


def test_costs_until_an_accuracy_was_reached(view: StudyView) -> None:
    coarse, fine = costs(view, 1e-2, 0, 1e-3), costs(view, 1e-4, 0, 1e-3)
    np.testing.assert_array_equal(coarse, [[1.0, 0.1, np.inf], [2.0, np.inf, 1.0]])
    np.testing.assert_array_equal(fine, [[1.0, 4.0, np.inf], [2.0, np.inf, 1.0]])
    np.testing.assert_array_equal(costs(view, 1e-4, 1, 1.0), [[20.0, 90.0, np.inf], [7.0, np.inf, 70.0]])
    assert cost_of({"way": [[1e-9, 0.0, 0.0]]}, 0.0, 1e-2, 0, 1e-3) == 1e-3  # no clock tells less


def test_profiles(view: StudyView) -> None:
    np.testing.assert_allclose(profile(costs(view, 1e-4, 0, 1e-3)), [[1.0, 4.0, np.inf], [2.0, np.inf, 1.0]])
    none = profile(np.full((2, 3), np.inf))
    assert np.isinf(none).all()
    rows = [row for row in profile_rows(view) if row["accuracy"] == 1e-4 and row["method"] == "blocc"]
    assert [(row["ratio"], row["share"]) for row in rows] == [(1.0, 0.5), (2.0, 1.0), (1.0, 0.5), (1.0, 1.0)]


def test_tables(view: StudyView) -> None:
    rows = {row["method"]: row for row in method_table(view).rows}
    assert rows["gam"] | {} == {
        **{"method": "gam", "problems": 2, "applies": 2, "certified": 2, "reached 1e-02": 1, "reached 1e-04": 1},
        **{"median seconds to 1e-04": 4.0, "median calls to 1e-04": 90.0},
    }
    assert rows["mine"]["applies"] == 1
    ends = problem_table(view).rows
    assert ends[0]["mine"] == "does not apply"
    assert ends[1]["gam"] == 5.0


def test_the_page(view: StudyView) -> None:
    text = study_page(Report("Benchmark", [without_ways(view)], [bench_item(view)]))
    assert "Performance profiles" in text
    assert "does not apply" in text
    assert "data:image/png;base64" in text
    assert "[[" not in text.partition("<script>")[0], "ways are not for people"


def test_cells_that_are_missing_or_failed(view: StudyView) -> None:
    failed = {"problem": "q", "method": "mine", "seed": 0, "status": "failed", "error": "ValueError: no"}
    partial = StudyView(view.study, [*view.rows[:2], failed])
    assert math.isinf(costs(partial, 1e-2, 0, 1e-3)[1].min())
    assert problem_table(partial).rows[1]["blocc"] is None
    assert bench_item(partial).pictures


def assert_is_latex(text: str) -> None:
    """Braces and brackets close, environments end in the order in which they begin, and nothing is left unescaped."""
    code = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    waiting: list[str] = []
    for sign in re.findall(r"\\begin\{\w+\}|\\end\{\w+\}|\\.|[{}\[\]]", code):
        if sign.startswith("\\begin"):
            waiting.append(sign.replace("begin", "end"))
        elif sign in "{[":
            waiting.append({"{": "}", "[": "]"}[sign])
        elif sign.startswith("\\end{") or sign in "}]":
            assert waiting.pop() == sign
    assert not waiting
    assert not re.search(r"(?<!\\)[%#]", code)
    assert len(re.findall(r"(?<!\\)\$", code)) % 2 == 0


def test_files_for_a_paper(view: StudyView) -> None:
    """By derivatives alone: on p blocc needs 20 and gam 90, on q blocc 7 and mine ten times that."""
    files = paper_files(view)
    assert files["profiles-derivatives.pdf"].startswith(b"%PDF")
    tex = files["profiles-derivatives.tex"].decode()
    assert "seconds" not in tex
    assert tex.count(r"\nextgroupplot") == 2
    assert tex.count(r"\addplot") == 6
    assert r"coordinates {(1,0) (1,0.5) (1,1) (11,1)};" in tex  # blocc
    assert r"coordinates {(1,0) (4.5,0.5) (11,0.5)};" in tex  # gam to 1e-4
    assert r"coordinates {(1,0) (10,0.5) (11,0.5)};" in tex  # mine
    assert len({line.split("{HTML}")[1] for line in tex.splitlines() if line.startswith(r"\definecolor")}) == 3
    assert_is_latex(tex)
    assert_is_latex(files["methods.tex"].decode())
    for line in (line for line in tex.splitlines() if line.startswith(r"\addplot")):
        colour = re.search(r"color=(\w+)", line)[1]  # type: ignore[index]
        assert rf"\definecolor{{{colour}}}" in tex[: tex.index(line)]
        points = np.array([[float(part) for part in pair.split(",")] for pair in re.findall(r"\(([^()]+)\)", line)])
        assert (np.diff(points, axis=0) >= 0.0).all()
        assert line.endswith("};")
    table = files["methods.tex"].decode().splitlines()
    assert r"blocc & 2 & 2 & 2 & 14 \\" in table
    assert r"mine & 1 & 1 & 1 & 70 \\" in table


def test_columns_of_yes_and_no_are_not_drawn(view: StudyView) -> None:
    assert "calls" in without_ways(view).drawn
    assert not {"applies", "success"} & set(without_ways(view).drawn)
