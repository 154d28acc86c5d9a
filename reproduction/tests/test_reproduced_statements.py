"""Lemma 1, Theorem 1, the complexities, Tables 1 and 4: what rows that obey or break them lead to, and single cells."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from paper_rows import Rows, observation, paper_text, quick_rows, with_a_failure

from reproduction import assumptions, epsilon, equivalence, families, networks


def done(study: str, rows: list[dict[str, Any]]) -> Rows:
    return {study: [{"status": "done", "error": None, **row} for row in rows]}


# --- Lemma 1 and Theorem 1 -----------------------------------------------------------------------------------------
def made_up_equivalence(power: float, growth: float = 1.0) -> Rows:
    gammas = list(equivalence.GAMMAS)
    rows = []
    for seed in range(5):
        for kind in families.KINDS:
            squares = [0.9 * gamma**power for gamma in gammas]
            columns = {"distance": squares, "bound": [1.0 / gamma**2 for gamma in gammas], "lost": [0.0] * len(gammas)}
            hidden = [gamma ** (0.5 * power) for gamma in gammas]
            found = {"growth": growth, "samples": 10, "power": equivalence._power(gammas, squares), "hidden": hidden}
            rows.append({"kind": kind, "seed": seed, "gammas": gammas, **columns, **found})
    return done(equivalence.STUDY, rows)


def test_equivalence_is_judged_by_bounds_and_powers() -> None:
    kept = equivalence.ITEM.conclude(made_up_equivalence(-2.0))
    assert [one.holds for one in kept.observations] == [True, True, True]
    broken = equivalence.ITEM.conclude(made_up_equivalence(-1.0, growth=0.9))
    assert [one.holds for one in broken.observations] == [False, False, False]
    failed = equivalence.ITEM.conclude(with_a_failure(made_up_equivalence(-2.0)))
    assert all(one.holds is None for one in failed.observations)
    assert set(equivalence.draw_figure(made_up_equivalence(-2.0))) == {"equivalence"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", families.KINDS)
def test_one_family_obeys_theorem_1(kind: str) -> None:
    row = equivalence.run_family(kind, 3, [8.0, 32.0, 128.0])
    assert row["growth"] >= 1.0 - 1e-6
    assert row["samples"] > 100
    assert all(seen <= bound for seen, bound in zip(row["distance"], row["bound"], strict=True))
    assert row["hidden"] == sorted(row["hidden"], reverse=True)


def test_families_meet_the_assumptions() -> None:
    for kind in families.KINDS:
        family = families.draw(kind, 0)
        again = families.draw(kind, 0)
        np.testing.assert_array_equal(family.start, again.start)
        flat = family.problem.flat
        for x in np.random.default_rng(0).uniform(-1.0, 1.0, (20, 2)):
            assert (np.asarray(flat.inequality(x, np.zeros(flat.n_y))) <= 1e-7).all()  # feasible at every x
        assert family.strong_convexity > 0.4


# --- complexities --------------------------------------------------------------------------------------------------
def made_up_work(powers: dict[str, float]) -> Rows:
    rows = []
    for kind, power in powers.items():
        for seed in range(5):
            for eps in (1.0, 0.1, 0.01):
                total = (1.0 + seed) * eps**-power
                rest = dict.fromkeys(("gamma", "steps", "bound_steps", "inner_follower", "inner_penalised"), 1.0)
                rows.append(
                    {"kind": kind, "seed": seed, "epsilon": eps, "bound_penalised": 1.0, "total": total, **rest}
                )
    return done(epsilon.STUDY, rows)


def test_complexities_are_powers_of_the_accuracy() -> None:
    kept = epsilon.ITEM.conclude(made_up_work({"curved": 2.5, "affine": 1.5}))
    assert [one.holds for one in kept.observations] == [True, True]
    broken = epsilon.ITEM.conclude(made_up_work({"curved": 2.7, "affine": 1.7}))
    assert [one.holds for one in broken.observations] == [False, False]
    assert set(epsilon.draw_figure(made_up_work({"curved": 2.0, "affine": 1.0}))) == {"epsilon"}
    assert all(one.holds is None for one in epsilon.ITEM.conclude({epsilon.STUDY: []}).observations)


@pytest.mark.slow
def test_an_accuracy_is_reached() -> None:
    loose, tight = epsilon.run_accuracy([{"kind": "affine", "seed": 0, "epsilon": eps} for eps in (1.0, 0.1)])
    assert loose["steps"] <= loose["bound_steps"]
    assert tight["steps"] <= tight["bound_steps"]
    assert tight["gamma"] > loose["gamma"]
    assert tight["total"] >= loose["total"]


# --- Tables 1 and 4, Figures 6 and 11 ------------------------------------------------------------------------------
def test_table_1_asks_the_methods() -> None:
    takes = {
        (method, kind): assumptions.ask(method, kind, 0)["applies"]
        for method in assumptions.METHODS[1:]
        for kind in assumptions.KINDS
    }
    assert [takes["aipod", kind] for kind in assumptions.KINDS] == [False, False, False, False, True]
    assert not takes["lv-hba", "curved"]
    assert takes["lv-hba", "jointly"]
    assert "whole space" in assumptions.ask("gam", "bounded", 0)["needs"]


@pytest.mark.slow
def test_table_1_and_its_statements() -> None:
    findings = assumptions.ITEM.conclude(quick_rows(assumptions.ITEM))
    assert [one.holds for one in findings.observations] == [True] * 4
    assert [line["method"] for line in findings.tables[0].rows] == list(assumptions.METHODS)


@pytest.fixture(scope="module")
def described() -> Rows:
    return done(networks.STUDY, [{"network": name, **described_without_design(name)} for name in networks.NAMES])


def described_without_design(name: str) -> dict[str, Any]:
    row = dict(networks.describe(name, "auto", 0)) if name != networks.DESIGNED else undesigned(name)
    return row


def undesigned(name: str) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "DESIGNED", "none")
        row = dict(networks.describe(name, "auto", 0))
    return {**row, "capacity": [1.0] * len(row["links"]), "share": [0.5] * len(row["markets"]), "utility": 17.0}


def test_the_networks_are_the_printed_ones(described: Rows) -> None:
    findings = networks.ITEM.conclude(described)
    assert [one.holds for one in findings.observations] == [True] * 4
    assert len(findings.tables[0].rows) == 6
    assert set(networks.draw(described)) == {"nine", "seville"}
    wrong = {networks.STUDY: [{**row, "revenue": [9.0] * len(row["revenue"])} for row in described[networks.STUDY]]}
    assert observation(networks.ITEM.conclude(wrong), "The packaged network").holds is False


def test_table_4_is_the_papers() -> None:
    text = paper_text().partition(r"\textbf{Parameter}   & (1,2)")[2].partition(r"\end{tabular}")[0]
    lines = [re.findall(r"\$(\d+)\$", line) for line in text.splitlines() if line.count("&") == 6 and "$" in line]
    printed = [list(map(int, line[-6:])) for line in lines]
    columns = [*zip(*networks.MARKETS.values(), strict=True), *zip(*networks.LINKS.values(), strict=True)]
    assert printed == [list(column) for column in columns]
