"""The theorems on the bench: the mean squared gradient against T, gamma and inner error; the rates of Algorithm 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc.kit.figure import BLUE, GREEN, ORANGE, RED, new_figure, style_axes
from blocc.report.study.study_views import Findings, Observation, Table
from blocc.studies.study import Row, Study, select
from reproduction.item import Item, RowsByStudy
from reproduction.summary import NOTHING, column, finished, is_complete, together, values
from reproduction.theory_runs import COUNTS, SHARES
from reproduction.verdicts import Interval, exceeds, interval, listed_intervals, paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS, ERRORS, RATES, CURVED = "theory-steps", "theory-errors", "theory-rates", "theory-curved"
SIDES = {"follower": "L_g", "penalised": "L_F"}
GAMMAS, INNER_ERRORS = (2.0, 8.0, 32.0), (0.0, 1e-6, 1e-4, 1e-2)
VERSIONS = ("single loop", "accelerated")
NOTICED = 1e-4  #: inner errors below this are lost in what the first steps leave
SLACK = 0.1  #: a fitted power may miss a claimed one by this


def studies(quick: bool) -> list[Study]:
    """Exact inner solutions at several gammas, inner errors at one, and both versions of Algorithm 2."""
    seeds = range(5 if quick else 10)
    runs, counts = "reproduction.theory_runs", list(COUNTS[1:4] if quick else COUNTS)
    shared: dict[str, Any] = {"seeds": seeds, "together": ("seed",)}
    gammas = list(GAMMAS[:2] if quick else GAMMAS)
    return [
        Study(STEPS, f"{runs}:run_average", {"gamma": gammas}, fixed={"inner_error": 0.0, "counts": counts}, **shared),
        Study(
            ERRORS,
            f"{runs}:run_average",
            {"gamma": gammas[:2], "inner_error": list(INNER_ERRORS[1:])},
            fixed={"counts": counts},
            **shared,
        ),
        Study(RATES, f"{runs}:run_rates", {"version": list(VERSIONS)}, seeds=seeds),
        Study(CURVED, f"{runs}:run_curved", seeds=seeds),
    ]


def conclude(rows_by_study: RowsByStudy) -> Findings:
    """What was measured, and whether it respects the orders of the theorems."""
    steps, errors, rates = (finished(rows_by_study, study) for study in (STEPS, ERRORS, RATES))
    averages = [_averages(rows, gamma, error) for gamma, error, rows in _groups([*steps, *errors])]
    speed = [_speed(list(select(rates, version=version)), version) for version in VERSIONS]
    return Findings(
        [
            Table("(1/T) sum of |G_eta(x_t)|^2 over the first T steps", averages, _NOTES),
            Table("Rates of Algorithm 2", speed, _RATE_NOTES),
            Table("Accelerated Algorithm 2 on curved gc and a bounded Y", _curved(rows_by_study), _CURVED_NOTES),
        ],
        [*_observations(rows_by_study, steps, errors, rates), _on_curved(rows_by_study)],
    )


def _priced(rows_by_study: RowsByStudy) -> list[Row]:
    """Problems whose follower has a multiplier: without one there is nothing to find."""
    return [row for row in finished(rows_by_study, CURVED) if row["multipliers"] > 1e-6]


def _curved(rows_by_study: RowsByStudy) -> list[dict[str, Any]]:
    rows = _priced(rows_by_study)
    lines = []
    for side, name in SIDES.items():
        line: dict[str, Any] = {"Lagrangian": name, "problems": len(rows)}
        for place, share in enumerate(SHARES):
            line[f"T to {share:g}"] = (
                f"{np.median([row[f'steps_{side}'][place] for row in rows]):g}" if rows else NOTHING
            )
        lines.append({**line, "power": f"{np.mean(_curved_powers(rows, side)):.2f}" if rows else NOTHING})
    return lines


def _curved_powers(rows: Sequence[Row], side: str) -> Any:
    """Problem by problem: the power of 1 / eps in T, from the dual gap."""
    return np.array([-np.polyfit(np.log(SHARES), np.log(row[f"steps_{side}"]), 1)[0] for row in rows])


def _on_curved(rows_by_study: RowsByStudy) -> Observation:
    rows = _priced(rows_by_study)
    complete = is_complete(rows_by_study, CURVED) and bool(rows)
    kept = [row[f"kept_{side}"] for row in rows for side in SIDES]
    powers = {name: _curved_powers(rows, side) for side, name in SIDES.items()}
    verdicts = [all(kept), *(exceeds(0.5 + SLACK - power) for power in powers.values())]
    return Observation(
        "On curved gc with a bounded Y the dual gap stays below 2 l_D |mu*|^2 / (t + 1)^2: T is of the order eps^-1/2",
        together(*verdicts) if complete else None,
        f"{sum(kept)} of {len(kept)} bounds kept; power of 1 / eps in T: "
        + listed_intervals({name: interval(power) for name, power in powers.items()}),
        paper("Theorem 3"),
    )


_NOTES = (
    "Algorithm 1 on a quadratic follower with affine rows and an upper objective that is not convex, eta = 1 / l_F, "
    "l_F "
    "estimated from differences of gradients; means over the starts. 'inner error' is the squared distance of both "
    "inner "
    "solutions to the exact ones, added in random directions.",
    "Theorem 2 bounds the mean by a constant times gamma / T + gamma^2 (eps_F + eps_g).",
)
_RATE_NOTES = (
    "Algorithm 2 from zero on random quadratic followers, all rows priced. The factor is that by which the squared "
    "error "
    "of (y, mu) shrinks in one step of the multipliers, its straightness the correlation of the logarithm with t. The "
    "power is that of t in the dual value's error. Theorem 4: linear, for affine rows. Theorem 3: a power of -2 or "
    "less.",
)


_CURVED_NOTES = (
    "Random problems with rows A y - B x + q |y|^2 <= room and a box for Y, by blocc.theory: from a cold start at the "
    "x of the largest multipliers, with steps by the constants that were measured. T: iterations after which the dual "
    "gap stays below this part of its bound after the first.",
)


def _groups(rows: Sequence[Row]) -> list[tuple[float, float, list[Row]]]:
    found = []
    for gamma in values(rows, "gamma") if rows else []:
        chosen = list(select(rows, gamma=gamma))
        found += [(gamma, error, list(select(chosen, inner_error=error))) for error in values(chosen, "inner_error")]
    return found


def _averages(rows: Sequence[Row], gamma: float, error: float) -> dict[str, Any]:
    line: dict[str, Any] = {"gamma": f"{gamma:g}", "inner error": f"{error:g}", "eta": f"{rows[0]['eta']:.3g}"}
    for place, count in enumerate(rows[0]["counts"]):
        line[f"T = {count:,}"] = f"{np.mean([row['averages'][place] for row in rows]):.3g}"
    return {**line, "power of T": f"{np.mean(_powers(rows)):.2f}" if error == 0.0 else NOTHING}


def _powers(rows: Sequence[Row]) -> list[float]:
    """Start by start: the power of T in the mean, over the last decade of T, for an order speaks of large ones."""
    found = []
    for row in rows:
        counts, averages = np.array(row["counts"], dtype=float), np.array(row["averages"])
        late = counts >= 0.1 * counts[-1]
        found.append(float(np.polyfit(np.log(counts[late]), np.log(np.maximum(averages[late], 1e-300)), 1)[0]))
    return found


def _speed(rows: Sequence[Row], version: str) -> dict[str, Any]:
    line: dict[str, Any] = {"version": version, "followers": len(rows)}
    for name in ("factor", "straightness", "power"):
        line[name] = f"{np.median(column(rows, name)):.3f}" if len(column(rows, name)) else NOTHING
    return line


def _observations(
    rows_by_study: RowsByStudy, steps: Sequence[Row], errors: Sequence[Row], rates: Sequence[Row]
) -> list[Observation]:
    gammas = values(steps, "gamma") if steps else []
    powers = {gamma: np.array(_powers(list(select(steps, gamma=gamma)))) for gamma in gammas}
    floors = _floors(steps, errors)
    of_error, of_gamma = _floor_powers(floors, 1), _floor_powers(floors, 0)
    version = {name: list(select(rates, version=name)) for name in VERSIONS}
    factors = column(version[VERSIONS[0]], "factor")
    gap = column(version[VERSIONS[1]], "power")

    def said(
        statement: str, study: str, verdicts: list[bool | None], figures: dict[Any, Interval], place: str
    ) -> Observation:
        complete = is_complete(rows_by_study, study) and bool(verdicts)
        return Observation(
            statement, together(*verdicts) if complete else None, listed_intervals(figures), paper(place)
        )

    return [
        said(
            "With exact inner solutions the mean squared gradient falls at least like 1 / T",
            STEPS,
            [exceeds(SLACK - 1.0 - found) for found in powers.values()],
            {f"power of T at gamma {gamma:g}": interval(found) for gamma, found in powers.items()},
            "Theorem 2",
        ),
        said(
            "What inner errors leave behind grows at most in proportion to them, and to gamma squared",
            ERRORS,
            [exceeds(1.0 + SLACK - of_error), exceeds(2.0 + SLACK - of_gamma)],
            {"power of the error": interval(of_error), "power of gamma": interval(of_gamma)},
            "Theorem 2",
        ),
        said(
            "The single-loop version converges linearly where rows are affine",
            RATES,
            [exceeds(1.0 - factors), exceeds(-0.9 - column(version[VERSIONS[0]], "straightness"))],
            {"factor of the squared error": interval(factors)},
            "Theorem 4",
        ),
        said(
            "The dual value of the accelerated version converges at least like 1 / t^2",
            RATES,
            [exceeds(SLACK - 2.0 - gap)],
            {"power of t": interval(gap)},
            "Theorem 3",
        ),
    ]


def _floors(steps: Sequence[Row], errors: Sequence[Row]) -> dict[tuple[float, float], dict[int, float]]:
    """By gamma and inner error, start by start: what the mean at the largest T exceeds that of exact solutions by."""
    exact = {(row["gamma"], row["seed"]): row["averages"][-1] for row in steps}
    found: dict[tuple[float, float], dict[int, float]] = {}
    for row in errors:
        place = row["gamma"], row["seed"]
        if place in exact and row["inner_error"] >= NOTICED and row["averages"][-1] > exact[place]:
            floors = found.setdefault((row["gamma"], row["inner_error"]), {})
            floors[row["seed"]] = row["averages"][-1] - exact[place]
    return found


def _floor_powers(floors: dict[tuple[float, float], dict[int, float]], place: int) -> Any:
    """Start by start: the power of gamma (0) or of the inner error (1) in what is left behind, the other one fixed."""
    ends = sorted(floors)
    if not ends:
        return np.zeros(0)
    least, most = ends[0], ends[-1]
    corner = (least[0], most[1])  # the largest error tells gamma's power best
    first, other = (corner, most) if place == 0 else (least, corner)
    if first not in floors or other not in floors or other[place] == first[place]:
        return np.zeros(0)
    ratio = np.log(other[place] / first[place])
    both = set(floors[first]) & set(floors[other])
    return np.array([np.log(floors[other][seed] / floors[first][seed]) / ratio for seed in sorted(both)])


# --- pictures ------------------------------------------------------------------------------------------------------
def draw(rows_by_study: RowsByStudy) -> dict[str, Figure]:
    """The mean squared gradient over T, and the errors of both versions of Algorithm 2."""
    steps, errors, rates = (finished(rows_by_study, study) for study in (STEPS, ERRORS, RATES))
    figure = new_figure(12.0, 4.4)
    outer, inner = figure.subplots(1, 2)
    colours = (BLUE, ORANGE, GREEN, RED)
    for gamma, error, rows in _groups([*steps, *errors]):
        places = values([*steps, *errors], "gamma")
        style = {"linestyle": "-" if error == 0.0 else ":", "color": colours[places.index(gamma) % 4]}
        label = rf"$\gamma = {gamma:g}$" + ("" if error == 0.0 else f", inner error {error:g}")
        outer.loglog(rows[0]["counts"], np.mean([row["averages"] for row in rows], axis=0), label=label, **style)
    for version, colour in zip(VERSIONS, (BLUE, ORANGE), strict=True):
        for place, row in enumerate(select(rates, version=version)):
            squared = np.array(row["squared_errors"])
            inner.semilogy(squared, color=colour, alpha=0.5, label="" if place else version)
    for axes, across, up in (
        (outer, "T", r"$\frac{1}{T}\sum_t \|G_\eta(x_t)\|^2$"),
        (inner, "steps of the multipliers", r"$\|(y, \mu) - (y^*, \mu^*)\|^2$"),
    ):
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        style_axes(axes)
        if axes.lines:
            axes.legend(frameon=False, fontsize=7)
    return {"rates": figure}


ITEM = Item(
    name="theory",
    title="Theorems 2 to 4: the mean squared gradient, and the rates of Algorithm 2, on curved gc as well",
    studies=studies,
    conclude=conclude,
    draw=draw,
    seconds=(60.0, 150.0),
)
