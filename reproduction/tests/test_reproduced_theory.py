"""The theorems on the bench: made-up rows, one short run of each measurement, and the whole item at reduced size."""

from __future__ import annotations

import numpy as np
import pytest
from paper_rows import Rows, observation, quick_rows

from reproduction import theory, theory_runs


@pytest.fixture(scope="module")
def theorems() -> Rows:
    return quick_rows(theory.ITEM)


def test_the_theorems_hold_where_they_are_measured(theorems: Rows) -> None:
    findings = theory.ITEM.conclude(theorems)
    assert all(one.holds is not False for one in findings.observations)
    assert observation(findings, "The single-loop version converges linearly").holds is True
    assert set(theory.draw(theorems)) == {"rates"}


def test_what_rows_of_known_powers_say() -> None:
    counts = [10, 100]
    rows: Rows = {
        theory.STEPS: [
            {
                "gamma": gamma,
                "inner_error": 0.0,
                "seed": seed,
                "counts": counts,
                "eta": 0.1,
                "averages": [1.0, 100.0**-power],
            }
            for gamma, power in ((2.0, 1.0), (8.0, 1.0))
            for seed in range(6)
        ],
        theory.ERRORS: [
            {"gamma": gamma, "inner_error": error, "seed": seed, "counts": counts, "eta": 0.1}
            | {"averages": [1.0, 0.01 + gamma**2 * error**2]}
            for gamma in (2.0, 8.0)
            for error in (1e-4, 1e-2)
            for seed in range(6)
        ],
        theory.RATES: [
            {"version": version, "seed": seed, "factor": 0.9, "straightness": -1.0, "power": -2.5}
            | {"squared_errors": [1.0, 0.9], "dual_gaps": [1.0, 0.5]}
            for version in theory.VERSIONS
            for seed in range(6)
        ],
        theory.CURVED: [
            {"seed": seed, "multipliers": float(seed > 0), "kept_follower": True, "kept_penalised": seed != 5}
            | {f"steps_{side}": [share**-0.5 for share in theory_runs.SHARES] for side in theory.SIDES}
            for seed in range(7)
        ],
    }
    findings = theory.ITEM.conclude(rows)
    curved = observation(findings, "On curved gc")
    assert curved.holds is False  # one bound is broken
    assert "11 of 12 bounds kept" in curved.measured  # a follower without multipliers does not count
    assert "L_g: 0.5 [0.5, 0.5]" in curved.measured
    for row in rows[theory.CURVED]:
        row["kept_penalised"] = True
    assert observation(theory.ITEM.conclude(rows), "On curved gc").holds is True
    assert observation(findings, "With exact inner solutions").holds is True
    left = observation(findings, "What inner errors leave behind")
    assert left.holds is False  # the square of the error grows faster than the error
    assert "power of the error: 2 [2, 2]; power of gamma: 2 [2, 2]" in left.measured
    assert observation(findings, "The dual value of the accelerated").holds is True
    assert findings.tables[0].rows[0]["power of T"] == "-2.00"
    empty = theory.ITEM.conclude({study: [] for study in rows})
    assert all(one.holds is None for one in empty.observations)


def test_the_rates_of_algorithm_2_are_measured_from_its_own_iterates() -> None:
    row = theory_runs.run_rates("single loop", 0)
    errors = np.array(row["squared_errors"])
    assert errors[-1] < 1e-6 * errors[0]
    assert 0.0 < row["factor"] < 1.0
    assert min(row["dual_gaps"]) > -1e-9
