"""Certificates that cannot lie: honest results verify, and whatever is changed in one is noticed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc import Box, OptionError, Reals, Result, Status, solve
from blocc._lib.digests import digest
from blocc.judge.verification import Check, Verification
from blocc.judge.verify import verify
from blocc.kit.storage import StorageError
from blocc.lagrangian import Multipliers
from blocc.problem import BilevelProblem
from blocc.problems.textbook import known_problem
from blocc.problems.toy import toy_problem
from blocc.report.storage import load_result
from old_results import as_pair
from selections import few


@pytest.fixture(scope="module")
def problem() -> BilevelProblem:
    """Three prices above, two quantities below, inequalities that couple them."""
    return known_problem("priced_capacity").problem


@pytest.fixture(scope="module")
def honest(problem: BilevelProblem) -> Result:
    result = solve(problem, known_problem("priced_capacity").starts[0])
    assert result.success
    return result


@pytest.fixture(scope="module")
def stalled(problem: BilevelProblem) -> Result:
    """A point far from the answer, with certificate numbers that say so."""
    seen = lambda state: state.iteration >= 1  # noqa: E731
    result = solve(problem, known_problem("priced_capacity").starts[0], gamma=2.0, callback=seen)
    assert result.certificate.stationarity_x > 1e-2
    return replace(result, status=Status.STALLED)


def names(verification: Verification) -> set[str]:
    return {check.name for check in verification.failed}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    few(
        ["blocc_toy", "softmax_matching", "gumus_floudas_2001_example_1", "equality_projection", "absolute_value"],
        "blocc_toy",
    ),
)
def test_textbook_answers_verify(name: str) -> None:
    """A box, a simplex, a constraint of the leader's, equalities, a kink."""
    known = known_problem(name)
    result = solve(known.problem, known.starts[0])
    assert result.success
    verification = verify(known.problem, result)
    assert verification.ok, str(verification)
    expected = {"status", "y minimises g", "no better x nearby"}
    assert expected <= {c.name for c in verification.checks}
    assert "verified" in str(verification)


@pytest.mark.slow
def test_other_runs_verify(problem: BilevelProblem, honest: Result, stalled: Result) -> None:
    for result in (honest, stalled):
        verification = verify(problem, result)
        assert verification.ok, str(verification)
    start = known_problem("priced_capacity").starts[0]
    fixed = solve(problem, start, gamma=4.0)  # the penalty hides something, and says how much
    assert verify(problem, fixed).ok, str(verify(problem, fixed))


OTHER_RUNS: dict[str, dict[str, Any]] = {
    "Algorithm 1": {"outer": "pgd", "gamma": 5.0, "step": 0.002, "max_iterations": 3000},
    "paper": {"preset": "paper"},
    **{name: {"method": name} for name in ("lv-hba", "bic-gaffa", "sflcb", "bvfsm", "gam")},
}


@pytest.mark.parametrize("name", few(OTHER_RUNS, "sflcb"))
def test_results_of_other_methods_verify_and_tampering_shows(name: str) -> None:
    problem = toy_problem()
    result = solve(problem, 0.9, **OTHER_RUNS[name])
    assert verify(problem, result).ok, str(verify(problem, result))
    moved = replace(result, x=shifted(result.x, 1e-3))
    assert not verify(problem, moved).ok
    assert "upper value" in names(verify(problem, replace(result, upper_value=result.upper_value - 1e-3)))


def shifted(tree: Any, by: float) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf) + by, tree)


TAMPERED: dict[str, tuple[Callable[[Result], Result], str]] = {
    "x": (lambda r: replace(r, x=shifted(r.x, 1e-4)), "upper value"),
    "y": (lambda r: replace(r, y=shifted(r.y, 1e-5)), "lower level: stationarity"),
    "y_penalty": (lambda r: replace(r, y_penalty=shifted(r.y_penalty, 1e-3)), "||yF - y||"),
    "multipliers": (
        lambda r: replace(r, multipliers=r.multipliers._replace(inequality=shifted(r.multipliers.inequality, 1e-6))),
        "lower level: stationarity",
    ),
    "upper_value": (lambda r: replace(r, upper_value=r.upper_value - 1e-6), "upper value"),
    "lower_value": (lambda r: replace(r, lower_value=r.lower_value + 1e-6), "lower value"),
    "upper_value_penalty": (lambda r: replace(r, upper_value_penalty=0.0), "upper value at yF"),
    "bound": (lambda r: replace(r, bound=r.upper_value + 3.0, gap=-3.0), "gap of the bound"),
    "gap": (lambda r: replace(r, bound=r.upper_value - 10.0, gap=0.0), "gap of the bound"),
}


@pytest.mark.parametrize("field", few(TAMPERED, "x", "y", "multipliers", "upper_value", "bound", "gap"))
def test_tampered_fields_are_noticed(problem: BilevelProblem, honest: Result, field: str) -> None:
    change, expected = TAMPERED[field]
    verification = verify(problem, change(honest))
    assert not verification.ok
    assert expected in names(verification), str(verification)


def test_a_bound_that_fits_its_value_and_gap_is_accepted(problem: BilevelProblem, honest: Result) -> None:
    found = verify(problem, replace(honest, bound=honest.upper_value - 1.0, gap=1.0))
    assert found.ok
    assert found["bound"].word == "not checked"  # values below it would refute it; none of them proves it
    assert "not checked" in str(found)


def test_rounding_of_large_terms_in_a_row_is_no_forgery() -> None:
    """Terms of 1e8 that cancel: their rounding, about 1e-8, is what another order of additions changes the row by."""
    problem = BilevelProblem(
        upper=lambda x, y: (x - 2.0) ** 2,
        lower=lambda x, y: (y - x) ** 2,
        upper_inequality=lambda x, y: 1e8 * (y - x) + x - 1.0,
        x_set=Box(-4.0, 4.0),
        y_set=Reals(),
    )
    result = solve(problem, 0.0)
    assert result.success, result.message
    for off, accepted in ((4e-9, True), (1e-4, False)):
        told = replace(result.certificate, leader_violation=result.certificate.leader_violation + off)
        assert verify(problem, replace(result, certificate=told))["leader's constraint"].ok is accepted


def test_a_flipped_status_is_noticed(problem: BilevelProblem, stalled: Result) -> None:
    verification = verify(problem, replace(stalled, status=Status.CONVERGED))
    assert {"status", "stationarity of x"} <= names(verification)
    assert "NOT verified" in str(verification)


@pytest.mark.parametrize(("number", "expected"), [("penalty_gap", "penalty gap"), ("distance", "||yF - y||")])
def test_lowered_gaps_are_noticed(number: str, expected: str) -> None:
    """A fixed gamma hides something; the certificate says how much, and must."""
    known = known_problem("quadratic_tracking")
    hiding = solve(known.problem, known.starts[0], gamma=2.0)
    assert getattr(hiding.certificate, number) > 1e-2
    assert verify(known.problem, hiding).ok
    forged = replace(hiding, certificate=replace(hiding.certificate, **{number: 1e-9}))
    assert names(verify(known.problem, forged)) == {expected}


def test_a_lowered_slope_is_noticed(problem: BilevelProblem, stalled: Result) -> None:
    forged = replace(stalled, certificate=replace(stalled.certificate, stationarity_x=1e-9))
    assert names(verify(problem, forged)) == {"stationarity of x"}


@pytest.fixture(scope="module")
def scaled() -> tuple[BilevelProblem, Result]:
    """Derivatives far from one: the run is made in other units, and judged in the user's."""
    known = known_problem("quadratic_tracking")
    upper, lower = known.problem.upper, known.problem.lower
    big = replace(
        known.problem,
        upper=lambda x, y: 1e6 * upper(1e-4 * x, 1e-3 * y),
        lower=lambda x, y: 1e-5 * lower(1e-4 * x, 1e-3 * y),
    )
    result = solve(big)
    assert result.success
    return big, result


@pytest.mark.slow
def test_other_units_verify(scaled: tuple[BilevelProblem, Result]) -> None:
    problem, result = scaled
    assert verify(problem, result).ok, str(verify(problem, result))


def test_what_a_file_says_about_itself_is_not_believed(scaled: tuple[BilevelProblem, Result]) -> None:
    """Units, tolerances and goals in a result's settings change nothing, whatever they say."""
    problem, result = scaled
    told = {"units": {"x": "[/red]", "upper": 2.0**-60}, "tolerance": 1e3, "goal": {"tolerance": 1e9}, "leader": 1}
    assert verify(problem, replace(result, settings={**result.settings, **told})).ok
    moved = replace(result, x=np.asarray(result.x) * 1.5)
    values = {
        "upper_value": float(problem.upper(moved.x, moved.y)),
        "lower_value": float(problem.lower(moved.x, moved.y)),
    }
    forged = replace(moved, **values, settings={**result.settings, **told})
    assert "status" in names(verify(problem, forged))


@pytest.mark.slow
def test_huge_multipliers_on_redundant_rows_prove_nothing() -> None:
    """y is far from the follower's answer, and multipliers of 2e9 make a tiny relative residual."""
    problem = BilevelProblem(
        upper=lambda x, y: (x - 1.0) ** 2 + y[0],
        lower=lambda x, y: (y[0] - x) ** 2 + y[1] ** 2,
        equality=lambda x, y: jnp.stack([y[1], 2.0 * y[1]]),
        x_set=Box(-5.0, 5.0),
        y_set=Reals(2),
    )
    honest = solve(problem)
    assert honest.success
    assert verify(problem, honest).ok, str(verify(problem, honest))
    y = honest.y + np.array([0.3, 0.0])
    forged = replace(
        honest,
        y=y,
        multipliers=Multipliers(np.zeros(0), np.array([2e9, -1e9])),
        upper_value=float(problem.upper(honest.x, y)),
        lower_value=float(problem.lower(honest.x, y)),
        certificate=replace(honest.certificate, stationarity=0.6, distance=0.3),
    )
    assert {"y minimises g", "y answers x: stationarity"} <= names(verify(problem, forged))


@pytest.mark.parametrize(
    ("number", "value"),
    [
        pytest.param("stationarity_x", 5.0, marks=pytest.mark.slow),
        ("stationarity_x", np.nan),
        ("radius", np.nan),
        pytest.param("radius", -1.0, marks=pytest.mark.slow),
    ],
)
def test_nonsense_in_a_certificate_is_noticed(
    problem: BilevelProblem, honest: Result, number: str, value: float
) -> None:
    forged = replace(honest, certificate=replace(honest.certificate, **{number: value}))
    assert "status" in names(verify(problem, forged))


@pytest.mark.parametrize("number", ["stationarity", "feasibility", "complementarity"])
def test_lowered_residuals_are_noticed(problem: BilevelProblem, stalled: Result, number: str) -> None:
    """y and its prices moved away from the answer, with the certificate of the answer."""
    moved = replace(
        stalled,
        y=shifted(stalled.y, 0.3 if number == "feasibility" else -0.3),
        multipliers=stalled.multipliers._replace(inequality=shifted(stalled.multipliers.inequality, 0.2)),
    )
    assert f"lower level: {number}" in names(verify(problem, moved))


def test_an_answer_that_is_not_exact_is_noticed(problem: BilevelProblem, stalled: Result) -> None:
    """Values and residuals are those of the moved y; only the flag is not."""
    assert stalled.certificate.exact
    found = verify(problem, replace(stalled, y=shifted(stalled.y, -0.3)))
    told = {name: found[f"lower level: {name}"].recomputed for name in ("stationarity", "complementarity")}
    told |= {"distance": found["||yF - y||"].recomputed, "stationarity_x": 1e9}
    moved = replace(
        stalled,
        y=shifted(stalled.y, -0.3),
        upper_value=found["upper value"].recomputed,
        lower_value=found["lower value"].recomputed,
        certificate=replace(stalled.certificate, **told),
    )
    assert "exact" in names(verify(problem, moved))
    modest = replace(moved, certificate=replace(moved.certificate, exact=False))
    assert "exact" not in names(verify(problem, modest))


def test_a_local_answer_of_the_follower_is_noticed() -> None:
    """The lower level is not convex: the derivative vanishes at y = 0, the minimiser is elsewhere."""
    known = known_problem("quadratic_tracking")
    result = solve(known.problem, known.starts[0])
    double_well = replace(known.problem, lower=lambda x, y: (y - x) ** 2 * ((y - x - 2.0) ** 2 - 0.5))
    verification = verify(double_well, result)
    assert "y minimises g" in names(verification), str(verification)


def test_a_result_of_another_problem(honest: Result) -> None:
    verification = verify(known_problem("quadratic_tracking").problem, honest)
    assert names(verification) == {"shapes", "status"}


def test_a_stricter_tolerance() -> None:
    known = known_problem("quadratic_tracking")
    x = solve(known.problem).x + 1e-3
    at = solve(replace(known.problem, x_set=Box(x - 1e-9, x + 1e-9)))  # the follower's answer at a point nearby
    slope = verify(known.problem, at)["stationarity of x"].recomputed
    moved = replace(at, certificate=replace(at.certificate, stationarity_x=slope))
    assert verify(known.problem, moved, tolerance=1e-1).ok, str(verify(known.problem, moved, tolerance=1e-1))
    assert not verify(known.problem, moved).ok


def test_bad_arguments(problem: BilevelProblem, honest: Result) -> None:
    with pytest.raises(OptionError, match="must be a Result"):
        verify(problem, 3)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="must be a BilevelProblem"):
        verify(honest, honest)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="tolerance must be a positive number"):
        verify(problem, honest, tolerance=-1.0)


# --- files ------------------------------------------------------------------------------------------------------------
def test_any_edit_of_a_saved_result_is_noticed(honest: Result, tmp_path: Path) -> None:
    path = honest.save(tmp_path / "kept")
    text = path.read_text()
    for old, new in (('"converged"', '"stalled"'), (repr(honest.upper_value), "0.5"), ('"gamma"', '"gimma"')):
        assert old in text
        path.write_text(text.replace(old, new, 1))
        with pytest.raises(StorageError, match="was changed after it was saved"):
            load_result(path)
    path.write_text(json.dumps(json.loads(text)))  # another layout says the same
    assert load_result(path).upper_value == honest.upper_value


def test_replaced_arrays_are_noticed(honest: Result, stalled: Result, tmp_path: Path) -> None:
    path = honest.save(tmp_path / "kept")
    as_pair(path)
    as_pair(stalled.save(tmp_path / "other")).with_suffix(".npz").replace(path.with_suffix(".npz"))
    with pytest.raises(StorageError, match=r"does not belong to kept\.json"):
        load_result(path)


def test_a_forger_who_knows_the_digest_is_found_out(problem: BilevelProblem, honest: Result, tmp_path: Path) -> None:
    path = honest.save(tmp_path / "kept")
    document = json.loads(path.read_text())
    document["result"]["upper_value"] -= 1.0
    path.write_text(json.dumps({**document, "sha256": digest(document)}))
    assert "upper value" in names(verify(problem, load_result(path)))


def test_old_files_are_read_with_a_warning(honest: Result, tmp_path: Path) -> None:
    path = honest.save(tmp_path / "kept")
    document = json.loads(path.read_text())
    del document["sha256"]
    path.write_text(json.dumps(document))
    with pytest.raises(StorageError, match="was changed"):
        load_result(path)
    as_pair(honest.save(path), version=1)
    with pytest.warns(UserWarning, match="no digest: saved by an older version"):
        assert load_result(path).upper_value == honest.upper_value


@pytest.mark.slow
def test_large_followers_with_rows_are_looked_at_where_their_penalty_falls() -> None:
    """Beyond 600 variables and rows there is no derivative of f(x, y(x)): a gradient of F_gamma shows one bad entry."""
    n, copies = 20, 31
    best = np.random.default_rng(0).uniform(-1.0, 1.0, n)
    problem = BilevelProblem(
        upper=lambda x, y: jnp.sum((y - jnp.repeat(best, copies)) ** 2),
        lower=lambda x, y: jnp.sum((y - jnp.repeat(x, copies)) ** 2),
        inequality=lambda x, y: jnp.sum(y) - 1e3,
        x_set=Box(-4.0, 4.0, shape=n),
        y_set=Reals(n * copies),
    )
    template = solve(problem, best, max_iterations=1)

    def claimed(x: np.ndarray) -> Result:
        y = np.repeat(x, copies)
        perfect = replace(template.certificate, stationarity=0.0, penalty_gap=0.0, distance=0.0, stationarity_x=0.0)
        return replace(
            template,
            x=x,
            y=y,
            y_penalty=y,
            gamma=np.inf,
            status=Status.CONVERGED,
            upper_value=float(problem.upper(x, y)),
            upper_value_penalty=float(problem.upper(x, y)),
            lower_value=0.0,
            multipliers=Multipliers(np.zeros(()), np.zeros(0)),
            certificate=replace(perfect, feasibility=0.0, complementarity=0.0, leader_violation=0.0, exact=True),
        )

    wrong = best.copy()
    wrong[7] += 0.3
    assert "no better x nearby" in [check.name for check in verify(problem, claimed(wrong)).failed]
    assert verify(problem, claimed(best)).ok


def test_a_failed_check_counts_whatever_kind_of_truth_value_it_has() -> None:
    assert not Verification("one", 1e-4, (Check("x", 1.0, 2.0, np.float64(2.0) <= 1.0),), True).ok
