"""Reading cases: the published DC figures, names, and errors that name the table and the row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from power_reference import THREE, clear, needs_pglib, written

pytest.importorskip("cvxpy", reason="CVXPY is not installed")
pytest.importorskip("matpowercaseframes", reason="matpowercaseframes is not installed")

from blocc.errors import BloccError, InputError, OptionError
from blocc.power import pglib_cases, read_case, solve_opf
from blocc.power.second_market import SecondMarket, Terms

#: Of PGLib-OPF v21.07, the column "DC" of its baseline table, which has five digits.
PUBLISHED = {
    "case5_pjm": 1.7480e4,
    "case14_ieee": 2.0515e3,
    "case24_ieee_rts": 6.1001e4,
    "case30_ieee": 7.4728e3,
    "case118_ieee": 9.3101e4,
    "case300_ieee": 5.1785e5,
}
GENERATORS = "  1 0 0 0 0 1 100 1 200 0;\n  3 0 0 0 0 1 100 1 150 0;\n"


@needs_pglib
@pytest.mark.parametrize("name", PUBLISHED)
def test_dispatch_costs_what_pglib_publishes_by_three_ways(name: str) -> None:
    case = read_case(name)
    dispatch = solve_opf(case)
    np.testing.assert_allclose(float(f"{dispatch.cost:.4e}"), PUBLISHED[name], rtol=1e-12)
    assert dispatch.imbalance < 1e-6
    assert dispatch.overload < 1e-5
    second = SecondMarket(case).clear(Terms())
    assert second is not None
    np.testing.assert_allclose(second.value, dispatch.value, rtol=1e-7)
    np.testing.assert_allclose(second.price, dispatch.price, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(second.flow_price, dispatch.flow_price, rtol=1e-5, atol=1e-5)
    if not case.cost_square.any():
        third = clear(case, case.cost_linear)
        np.testing.assert_allclose(third.value, dispatch.value, rtol=1e-8)
        np.testing.assert_allclose(third.price, dispatch.price, rtol=1e-6, atol=1e-6)


@needs_pglib
def test_cases_are_found_by_short_and_long_names() -> None:
    assert "case14_ieee" in pglib_cases()
    for name in ("case14", "case14_ieee", "pglib_opf_case14_ieee", "pglib_opf_case14_ieee.m"):
        assert read_case(name).name == "case14_ieee"
    with pytest.raises(InputError, match="several cases are called case30: case30_as, case30_ieee"):
        read_case("case30")
    with pytest.raises(InputError, match="no file case7, and no case of that name"):
        read_case("case7")


def test_a_case_written_by_hand_has_the_prices_of_its_ring(tmp_path: Path) -> None:
    case = read_case(written(tmp_path))
    assert (case.n_buses, case.n_generators, case.n_lines, case.name) == (3, 2, 3, "three")
    dispatch = solve_opf(case)
    # A MW from 1 to 3 takes the direct line by 2/3; so the line of 60 MW limits what bus 1 may send.
    np.testing.assert_allclose(dispatch.flow[2], 60.0, rtol=1e-7)
    np.testing.assert_allclose(dispatch.price[[0, 2]], [10.0, 40.0], rtol=1e-6)
    np.testing.assert_allclose(dispatch.price[1], 25.0, rtol=1e-6)
    np.testing.assert_allclose(dispatch.flow_price[2], 45.0, rtol=1e-6)
    np.testing.assert_allclose(dispatch.congestion_rent, 45.0 * 60.0, rtol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("mpc.gen = [\n  1 0", "mpc.gen = [\n  9 0", "mpc.gen, row 1: there is no bus 9"),
        ("1 200 0;", "1 200 300;", "mpc.gen, row 1: PMIN 300 is above PMAX 200"),
        ("2 0 0 3 0.0 10.0 0.0;", "3 0 0 3 0.0 10.0 0.0;", "mpc.gencost, row 1: model 3 is neither 1 nor 2"),
        ("2 0 0 3 0.0 10.0 0.0;", "2 0 0 3 -1.0 10.0 0.0;", "mpc.gencost, row 1: -1 p.2 is not convex"),
        ("2 0 0 3 0.0 10.0 0.0;", "2 0 0 3 0.0 NaN 0.0;", "mpc.gencost, row 1: a cost is not a finite number"),
        ("2 0 0 3 0.0 10.0 0.0;", "2 0 0 4 0.0 10.0 0.0;", "mpc.gencost, row 1: NCOST 4 does not fit 3 numbers"),
        ("2 3 0.0 0.1 0 80", "2 3 0.0 0.0 0 80", "mpc.branch, row 2: the reactance BR_X is 0"),
        ("  2 1 50.0", "  1 1 50.0", "mpc.bus has a bus number twice"),
        ("1 3 0.0 0.1 0 60", "1 7 0.0 0.1 0 60", "mpc.branch, row 3: there is no bus 7"),
        ("3 1 100.0", "3 1 1000.0", "demand is 1050 MW, and the generators give between 0 and 350 MW"),
        ("mpc.baseMVA = 100.0", "mpc.baseMVA = 0.0", "mpc.baseMVA must be a positive number"),
        ("3 1 100.0", "3 1 NaN", "mpc.bus, row 3: PD is not a finite number"),
        ("function mpc = three", "hello", "is no MATPOWER case"),
        ("  3 1 100.0", "  3.5 1 100.0", r"mpc.bus, row 3: BUS_I must be the number of a bus, .*, got 3\.5"),
        ("3 0 0 0 0 1 100 1 150", "3.5 0 0 0 0 1 100 1 150", r"mpc.gen, row 2: GEN_BUS must be .* got 3\.5"),
        ("1 3 0.0 0.1 0 60", "1 2.5 0.0 0.1 0 60", r"mpc.branch, row 3: T_BUS must be .* got 2\.5"),
        ("  2 1 50.0", "  2 7 50.0", "mpc.bus, row 2: BUS_TYPE must be 1, 2, 3 or 4, got 7"),
        ("  2 1 50.0", "  2 1 abc", "mpc.bus, row 2: 'abc' is no number"),
        ("  2 1 50.0", "  2 1", "mpc.bus, row 2 has 12 numbers, and row 1 has 13: all rows of a table must"),
        ("  2 1 50.0", "  2, 1, 50.0", "mpc.bus, row 2: numbers must have spaces between them, not commas"),
        (GENERATORS, "", "mpc.gen has no rows; a market needs generators"),
        ("mpc.branch = [", "mpc.other = [", "there is no table mpc.branch: a market needs lines"),
        ("];\nmpc.gen ", "\nmpc.gen ", "mpc.bus is not closed: its rows must end with"),
        ("mpc.baseMVA = 100.0", "mpc.baseMVA = [1 2]", "mpc.baseMVA must be a positive number"),
        ("80 80 80 0 0 1 -30 30", "80 80 80 0 0 1 30 -30", "mpc.branch, row 1: ANGMIN 30 is above ANGMAX -30"),
        ("0.1 0 60", "0.1 0 -60", "mpc.branch, row 3: RATE_A must not be negative, got -60"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in THREE
    path = written(tmp_path, THREE.replace(old, new, 1))
    with pytest.raises(InputError, match=words):
        read_case(path)


def test_islands_and_outages_are_told(tmp_path: Path) -> None:
    text = THREE.replace("80 80 80 0 0 1 -30 30;\n  2 3", "80 80 80 0 0 0 -30 30;\n  2 3")
    case = read_case(written(tmp_path, text))
    assert case.n_lines == 2
    assert any("1 lines out of service" in one for one in case.assumptions)
    apart = text.replace("2 3 0.0 0.1 0 80 80 80 0 0 1", "2 3 0.0 0.1 0 80 80 80 0 0 0")
    with pytest.raises(InputError, match="leave 2 islands; the smallest has the buses 2"):
        read_case(written(tmp_path, apart))


def test_piecewise_costs_and_quadratic_ones_agree_with_the_second_market(tmp_path: Path) -> None:
    text = THREE.replace("2 0 0 3 0.0 10.0 0.0;", "1 0 0 3 0 0 100 1000 200 3500;").replace(
        "2 0 0 3 0.0 40.0 5.0;", "2 0 0 3 0.1 20.0 5.0 0 0 0;"
    )
    text = text.replace("3 0 0 100", "3 0 0 100")
    case = read_case(written(tmp_path, text))
    assert case.segments[0].slope == (10.0, 25.0)
    dispatch, second = solve_opf(case), SecondMarket(case).clear(Terms())
    assert second is not None
    np.testing.assert_allclose(second.value, dispatch.value, rtol=1e-9)
    np.testing.assert_allclose(second.price, dispatch.price, atol=1e-3)
    np.testing.assert_allclose(dispatch.cost, dispatch.value, rtol=1e-8)


def test_the_matpower_model_has_taps_and_shifts(tmp_path: Path) -> None:
    text = THREE.replace("60 60 60 0 0 1", "60 60 60 0.9 5 1")
    plain, full = (read_case(written(tmp_path, text), branch_model=one) for one in ("pglib", "matpower"))
    np.testing.assert_allclose(full.susceptance[2], plain.susceptance[2] / 0.9)
    np.testing.assert_allclose(full.shift, np.deg2rad([0.0, 0.0, 5.0]))
    assert not plain.shift.any()
    dispatch, second = solve_opf(full), SecondMarket(full).clear(Terms())
    assert second is not None
    np.testing.assert_allclose(second.value, dispatch.value, rtol=1e-8)
    np.testing.assert_allclose(second.flow, dispatch.flow, atol=1e-4)
    with pytest.raises(OptionError, match="branch_model must be 'pglib' or 'matpower'"):
        read_case(written(tmp_path), branch_model="ac")  # type: ignore[arg-type]


def test_demand_that_lines_cannot_serve_needs_a_price_cap(tmp_path: Path) -> None:
    text = THREE.replace("0 0 0 0 1 100 1 150 0;", "0 0 0 0 1 100 1 10 0;")
    case = read_case(written(tmp_path, text))
    with pytest.raises(InputError, match="cannot serve the demand; with a price_cap"):
        solve_opf(case)
    dispatch = solve_opf(case, price_cap=500.0)
    np.testing.assert_allclose(dispatch.shed.sum(), clear_shortage(case), atol=1e-5)
    np.testing.assert_allclose(dispatch.price.max(), 500.0, rtol=1e-6)
    with pytest.raises(OptionError, match="price_cap must be a positive number"):
        solve_opf(case, price_cap=-1.0)


def clear_shortage(case: object) -> float:
    """What is not served, by the tests' own program."""
    found = clear(case, case.cost_linear, 500.0)  # type: ignore[arg-type, attr-defined]
    return float(case.demand.sum() - found.output.sum())  # type: ignore[attr-defined]


def test_prices_that_are_not_unique_are_told(tmp_path: Path) -> None:
    usual = solve_opf(read_case(written(tmp_path)))
    assert usual.price_is_unique.all()
    assert "not unique" not in repr(usual)
    idle = THREE.replace("2 1 50.0 ", "2 1 0.0 ").replace("3 1 100.0", "3 1 0.0")
    nobody = solve_opf(read_case(written(tmp_path, idle)))  # nobody buys, so nobody's cost is a price
    assert not nobody.price_is_unique.any()
    assert "prices at any bus: others would do as well" in repr(nobody)
    assert "dispatch of 0 MW" in repr(nobody)
    # The line to bus 4 is full of what it may carry, nothing, so its price is anybody's guess; the others' are not.
    fourth = THREE.replace("0.9;\n];\nmpc.gen", "0.9;\n  4 1 0.0 0 0 0 1 1 0 230 1 1.1 0.9;\n];\nmpc.gen")
    fourth = fourth.replace("mpc.branch = [", "mpc.branch = [\n  3 4 0.0 0.1 0 1e-9 0 0 0 0 1 -30 30;")
    behind = solve_opf(read_case(written(tmp_path, fourth)))
    assert behind.price_is_unique.tolist() == [True, True, True, False]
    assert "prices at the buses 4: others" in repr(behind)


def test_numbers_that_a_case_does_not_have_are_refused(tmp_path: Path) -> None:
    case = read_case(written(tmp_path))
    for numbers, words in (([7], "has no 7 in service; it has 1, 2"), ([1, 1], "given twice"), ("x", "must be 'all'")):
        with pytest.raises(BloccError, match=words):
            case.places("generators", numbers)


def test_broken_files_end_with_a_case_or_an_error_of_ours(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    pieces = ["0", "-1", "1e308", "NaN", "Inf", ";", "]", "", "%", "mpc.bus = [];", "1 2 3", "'a'", "\n"]
    refused = 0
    for _ in range(60):
        words = THREE.split(" ")
        for at in generator.integers(len(words), size=2):
            words[at] = pieces[generator.integers(len(pieces))]
        text = " ".join(words)
        try:
            read_case(written(tmp_path, text[: generator.integers(len(text) // 2, 2 * len(text))]))
        except BloccError:
            refused += 1
    assert 20 < refused < 60
