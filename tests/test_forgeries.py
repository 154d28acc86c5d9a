"""Saved answers of every format, forged figure by figure: none may be taken for true.

A file is not believed where its digest is not its own. A forger who knows how digests are made is left with figures
that are recomputed, that follow from such, that are held within a limit, or that are named as unchecked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, solve, verify
from blocc.errors import BloccError
from blocc.judge.verification import Verification
from blocc.kit.claims import CONE_UNCHECKED, RESULT_BOUNDED, RESULT_UNCHECKED, is_below
from blocc.kit.storage import ChangedError
from blocc.report.storage import load_result, save_result
from blocc.transport import design_network, read_network, verify_design
from blocc.transport.design.documents import DESIGN
from forgeries import CHANGES, Forgery, forgeries, sealed_again
from power_reference import written
from road_designs import OPTIONS, small_roads

Verify = Callable[[Path], Verification]


class Format(NamedTuple):
    """A true document, and what is told about its figures."""

    document: dict[str, Any]
    verify: Verify
    unchecked: Mapping[str, str]
    bounded: Mapping[str, str]


def plain(document: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(document))


def transport() -> Format:
    network = read_network("three")
    check: Verify = lambda path: verify_design(network, DESIGN.read(path))  # noqa: E731
    return Format(plain(DESIGN.document(design_network(network, starts=1))), check, DESIGN.unchecked, DESIGN.bounded)


def of(kind: Any, answer: Any, subject: Any) -> Format:
    """What an application declares of its files."""
    check: Verify = lambda path: kind.verify(path, subject)  # noqa: E731
    return Format(plain(kind.document(answer)), check, kind.unchecked, kind.bounded)


def roads() -> Format:
    pytest.importorskip("numba")
    from blocc.roads import documents, expand_network

    return of(documents.DESIGN, expand_network(small_roads(), **OPTIONS), small_roads())


def trips() -> Format:
    pytest.importorskip("numba")
    from blocc.roads import documents, estimate_demand

    estimate = estimate_demand(small_roads(), counts={"b>c": 3.0}, prior_weight=0.1, starts=1)
    return of(documents.ESTIMATE, estimate, small_roads())


def power(kind: str, folder: Path) -> Format:
    pytest.importorskip("matpowercaseframes")
    from blocc.power import bid_generators, documents, expand_lines, read_case, set_tariff

    case = read_case(written(folder))
    made = {
        "bids": lambda: bid_generators(case, [2], offer_cap=70.0, starts=1),
        "expansion": lambda: expand_lines(case, [1, 2, 3], cost=0.5, max_addition=60.0, starts=1),
        "tariff": lambda: set_tariff(case, elasticity=-0.3, starts=1),
    }
    return of(documents.DESIGN, made[kind](), case)


def result(folder: Path) -> Format:
    problem = BilevelProblem(
        upper=lambda x, y: (x - 1.0) ** 2 + y**2,
        lower=lambda x, y: (y - x) ** 2,
        x_set=Box(0.0, 3.0),
        y_set=Reals(),
        name="result",
    )
    document = json.loads(save_result(solve(problem, 2.0), folder / "result").read_text())
    return Format(document, lambda path: verify(problem, load_result(path)), RESULT_UNCHECKED, RESULT_BOUNDED)


def cones(folder: Path) -> Format:
    cp = pytest.importorskip("cvxpy")
    from blocc.cvxpy import BilevelProblem as ConeProblem

    x, y = cp.Parameter(name="x", bounds=[-1, 2]), cp.Variable(2, name="y")
    follower = cp.Problem(cp.Minimize(cp.sum_squares(y - 1) + y[0]), [cp.sum(y) >= x])
    problem = ConeProblem(cp.Minimize(cp.square(x - 1) + y[0]), follower, x)
    document = json.loads(save_result(problem.solve(0.7, progress=False), folder / "result").read_text())
    return Format(document, lambda path: problem.verify(load_result(path)), CONE_UNCHECKED, RESULT_BOUNDED)


FORMATS: dict[str, Callable[[Path], Format]] = {
    "transport": lambda folder: transport(),
    "roads": lambda folder: roads(),
    "trips": lambda folder: trips(),
    "bids": lambda folder: power("bids", folder),
    "expansion": lambda folder: power("expansion", folder),
    "tariff": lambda folder: power("tariff", folder),
    "result": result,
    "cones": cones,
}


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Format]:
    """A format by its name, computed once."""
    return cache(lambda name: FORMATS[name](tmp_path_factory.mktemp(name)))


def accepted(form: Format, forgery: Mapping[str, Any], path: Path) -> bool:
    path.write_text(json.dumps(forgery))
    try:
        return form.verify(path).ok
    except BloccError:  # that is no such document at all
        return False


def claims(form: Format) -> list[Forgery]:
    """Forgeries of figures that are claimed without reserve."""
    return [one for one in forgeries(form.document, form.unchecked) if not is_below(one.name, form.bounded)]


@pytest.mark.parametrize("name", FORMATS)
def test_no_forgery_is_accepted(name: str, known: Callable[[str], Format], tmp_path: Path) -> None:
    form = known(name)
    assert accepted(form, form.document, tmp_path / "true.json")
    found = claims(form)
    for one in found:  # the digest alone finds each of them, where it was not made anew
        (tmp_path / "edited.json").write_text(json.dumps(one.document))
        with pytest.raises(ChangedError, match="was changed after it was saved"):
            form.verify(tmp_path / "edited.json")
    some = np.random.default_rng(len(name)).permutation(len(found))[:30]
    wrong = [found[k].label for k in some if accepted(form, sealed_again(found[k].document), tmp_path / "forged.json")]
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_no_forgery_at_all_is_accepted(name: str, known: Callable[[str], Format], tmp_path: Path) -> None:
    form = known(name)
    path = tmp_path / "forged.json"
    assert [one.label for one in claims(form) if accepted(form, sealed_again(one.document), path)] == []


#: Figures that no limit is known for, and the places in a result's certificate of distances, gaps and radii.
FREE = ("summary.gamma", "result.gamma", "links.price", "links.marginal_value")
WIDE = tuple(f"('result', 'certificate', 'dict', {place}" for place in (3, 4, 5, 6))


@pytest.mark.parametrize("name", FORMATS)
def test_figures_within_a_limit_do_not_leave_it(name: str, known: Callable[[str], Format], tmp_path: Path) -> None:
    """One more than a residual is a residual that no answer has."""
    form = known(name)
    names = [one for one in form.bounded if one not in FREE]
    found = [
        one
        for one in forgeries(form.document, form.unchecked)
        if is_below(one.name, names) and one.label.endswith("one more") and not one.label.startswith(WIDE)
    ]
    wrong = [one.label for one in found if accepted(form, sealed_again(one.document), tmp_path / "forged.json")]
    assert wrong == []


@pytest.mark.parametrize("name", ["result", "cones"])
@pytest.mark.parametrize("field", ["x", "y"])
@pytest.mark.parametrize("change", list(CHANGES)[:4])
def test_forged_arrays_are_not_accepted(
    name: str, field: str, change: str, known: Callable[[str], Format], tmp_path: Path
) -> None:
    form = known(name)
    path = tmp_path / "forged.json"
    path.write_text(json.dumps(form.document))
    true = load_result(path)
    old = getattr(true, field)
    new = jax.tree.map(lambda leaf: np.asarray(CHANGES[change](leaf)), old)
    if all(np.allclose(one, other) for one, other in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)):
        pytest.skip("that changes nothing")
    save_result(replace(true, **{field: new}), path)
    assert not form.verify(path).ok
