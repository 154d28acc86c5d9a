"""The paper's tables of complexity as measured growth: seconds of one iteration against d_y and d_c."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc.kit.figure import new_figure, style_axes
from blocc.report.study.study_views import Findings, Observation, Table
from blocc.studies.study import Row, Study, select
from reproduction.complexity_costs import (
    AIPOD_ROWS,
    AIPOD_VARIABLES,
    AXES,
    FIT_FROM,
    INNER_STEPS,
    METHODS,
    OTHER,
    PUBLISHED,
    SIZES,
    exponents,
    sweep,
)
from reproduction.item import Item, RowsByStudy, Shown
from reproduction.summary import NOTHING, finished, is_complete
from reproduction.verdicts import OURS, paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The study of each axis.
STUDIES = {"d_y": "complexity-variables", "d_c": "complexity-constraints"}
QUICK_SIZES = (100, 300)
#: Fewer sizes of one solver make no fit that a verdict could rest on: a line through two points has no residual.
FEWEST_SIZES = 3
QUICK_METHODS = {"d_y": ("blocc", PUBLISHED, "lv-hba", "gam"), "d_c": (PUBLISHED, "sflcb")}
#: A fitted exponent may exceed a claimed one by this: few sizes and other programs blur it.
EXPONENT_SLACK = 0.25


@dataclass(frozen=True)
class Claim:
    """What the paper claims about a method."""

    iterations: str  #: to reach accuracy eps
    step: str  #: cost of an iteration
    powers: Mapping[str, float | None]  #: of the cost, in d_y and in d_c


_BLOCC = Claim("eps^-1.5", "d_x^2 + d_y^2 + d_c (d_x + d_y)", {"d_y": 2.0, "d_c": 1.0})
_NONE: Mapping[str, float | None] = {"d_y": None, "d_c": None}
#: The affine case, of which the measured family is one. The paper prints no cost of a step of BVFSM and AiPOD.
CLAIMS: dict[str, Claim] = {
    "blocc": _BLOCC,
    PUBLISHED: _BLOCC,
    "lv-hba": Claim("eps^-3", "d_x d_y d_c + (d_x + d_y)^3.5", {"d_y": 3.5, "d_c": 1.0}),
    "gam": Claim("asymptotic", "more than d_y^3 + d_x^2 + d_c (d_x + d_y)", {"d_y": 3.0, "d_c": 1.0}),
    "bvfsm": Claim(NOTHING, NOTHING, _NONE),
    "aipod": Claim("eps^-1.5", NOTHING, _NONE),
}


def run_sweep(method: str, axis: str, sizes: Sequence[int], seed: int) -> Row:
    """The cost of an iteration at all sizes that the method can; ``seed`` only numbers the measurement."""
    found = sweep(method, axis, sizes)
    fitted = exponents(found)
    largest = list(fitted)[-1] if fitted else None
    return {
        "step_sizes": [one.size for one in found],
        "step_seconds": [one.seconds for one in found],
        "solvers": [one.solver for one in found],
        "solver": largest,  # that of the largest sizes to which a line can be fitted
        "exponent": None if largest is None else fitted[largest],
        "fitted_sizes": sum(one.solver == largest and one.size >= FIT_FROM for one in found),
    }


def studies(quick: bool) -> list[Study]:
    """Every method along both axes; a cell is a whole sweep, since it ends where the method becomes too slow.

    The reduced size has the paper's own methods, along d_c only those that compile quickly.
    """
    return [
        Study(
            name,
            "reproduction.complexity:run_sweep",
            {"method": list(QUICK_METHODS[axis] if quick else METHODS)},
            fixed={"axis": axis, "sizes": list(QUICK_SIZES if quick else SIZES)},
            measured=("step_sizes", "step_seconds", "solvers", "solver", "exponent", "fitted_sizes"),
        )
        for axis, name in STUDIES.items()
    ]


def conclude(rows_by_study: RowsByStudy) -> Findings:
    """Milliseconds by size, and the fitted exponents beside the paper's orders."""
    rows = [row for name in STUDIES.values() for row in finished(rows_by_study, name)]
    tables = [
        Table(f"Milliseconds of one iteration as {axis} grows", _costs(list(select(rows, axis=axis))), _NOTES)
        for axis in AXES
    ]
    orders = [_orders(rows, method) for method in METHODS]
    tables.append(Table("Growth of an iteration's cost", orders, _ORDER_NOTES))
    return Findings(tables, _observations(rows, is_complete(rows_by_study, *STUDIES.values())))


_NOTES = (
    f"The size that does not grow is {OTHER}, and x has 5 variables; for AiPOD {AIPOD_ROWS} equalities, and "
    f"{AIPOD_VARIABLES} variables where equalities grow. Constraints are dense and affine.",
    f"blocc: one evaluation of F_gamma and its gradient by the package's own inner solver. {PUBLISHED}: the same by "
    f"{INNER_STEPS} single-loop iterations of Algorithm 2 for each inner problem. bvfsm and aipod: with their inner "
    "steps. lv-hba: from a point outside the coupled set, so that its projections have work to do. gam: with every "
    "active "
    "set that it splits into. A method ends where its dense matrices no longer fit, or where a step takes more than "
    "two "
    "seconds.",
)
_ORDER_NOTES = (
    f"Exponents are fitted from {FIT_FROM} on, over the sizes of one solver: the one named, of the largest sizes. "
    f"An order is an upper bound for large sizes: smaller exponents do not "
    "contradict it.",
    "The paper's orders are those of affine constraints. Its iterations to accuracy eps are not measured here.",
)


_JUDGED = f"judged at Algorithm 1, from {FEWEST_SIZES} sizes of one solver on"


def _costs(rows: Sequence[Row]) -> list[dict[str, Any]]:
    sizes = sorted({size for row in rows for size in row["sizes"]})
    lines = []
    for row in rows:
        by_size = dict(zip(row["step_sizes"], row["step_seconds"], strict=True))
        line: dict[str, Any] = {"method": row["method"]}
        line |= {f"{size:,}": f"{1e3 * by_size[size]:.3g}" if size in by_size else NOTHING for size in sizes}
        lines.append({**line, "exponent": _number(row["exponent"]), "solver": row.get("solver") or ""})
    return lines


def _orders(rows: Sequence[Row], method: str) -> dict[str, Any]:
    claim = CLAIMS.get(method, Claim(NOTHING, NOTHING, _NONE))
    line: dict[str, Any] = {
        "method": method,
        "paper: iterations": claim.iterations,
        "paper: cost of an iteration": claim.step,
    }
    for axis in AXES:
        line[f"paper: power of {axis}"] = _number(claim.powers[axis], "g")
        line[f"measured: power of {axis}"] = _number(_exponents(rows, axis).get(method))
    return line


def _exponents(rows: Sequence[Row], axis: str) -> dict[str, float]:
    return {row["method"]: row["exponent"] for row in select(rows, axis=axis) if row["exponent"] is not None}


def _observations(rows: Sequence[Row], complete: bool) -> list[Observation]:
    powers = {axis: _exponents(rows, axis) for axis in AXES}
    ours, others = (PUBLISHED,), ("lv-hba", "gam")
    fitted = {axis: {row["method"]: row["fitted_sizes"] for row in select(rows, axis=axis)} for axis in AXES}
    enough = {axis: all(fitted[axis].get(method, 0) >= FEWEST_SIZES for method in ours) for axis in AXES}

    def told(methods: Sequence[str], axis: str) -> str:
        return ", ".join(f"{method} {powers[axis][method]:.2f}" for method in methods if method in powers[axis])

    claims = [
        powers[axis][method] <= claimed + EXPONENT_SLACK
        for method in ours
        for axis in AXES
        if enough[axis] and method in powers[axis] and (claimed := CLAIMS[method].powers[axis]) is not None
    ]
    at_largest = _at_largest(rows) if complete else {}
    cheaper = [at[PUBLISHED] < min(at[name] for name in others) for at in at_largest.values()]
    return [
        Observation(
            "A step of BLOCC grows no faster than d_y^2 and d_c",
            all(claims) if complete and len(claims) == len(AXES) else None,
            f"powers of d_y: {told((*ours, 'blocc'), 'd_y')}; of d_c: {told((*ours, 'blocc'), 'd_c')}; {_JUDGED}",
            paper("Table 7"),
        ),
        *(
            Observation(
                f"Steps of {title} grow faster with d_y than those of BLOCC",
                powers["d_y"][other] > powers["d_y"][PUBLISHED]
                if complete and enough["d_y"] and fitted["d_y"].get(other, 0) >= FEWEST_SIZES
                else None,
                f"powers of d_y: {told((*ours, other, 'blocc'), 'd_y')}; {_JUDGED}",
                paper("Table 7"),
            )
            for other, title in zip(others, ("LV-HBA", "GAM"), strict=True)
        ),
        Observation(
            "At the largest size Algorithm 1's iteration is the cheapest of the three methods",
            all(cheaper) if cheaper and enough["d_y"] else None,
            "; ".join(
                f"{place}: " + ", ".join(f"{name} {1e3 * seconds:.3g} ms" for name, seconds in costs.items())
                for place, costs in at_largest.items()
            )
            + f". It makes 2 x {INNER_STEPS} iterations of Algorithm 2",
            OURS,
        ),
    ]


def _at_largest(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """The cost of each of the paper's three methods at the largest size that all of them reach."""
    found = {}
    compared = ("blocc", PUBLISHED, "lv-hba", "gam")
    for axis in AXES:
        costs = {
            row["method"]: dict(zip(row["step_sizes"], row["step_seconds"], strict=True))
            for row in select(rows, axis=axis)
            if row["method"] in compared
        }
        common = set.intersection(*(set(by_size) for by_size in costs.values())) if costs else set()
        if common and set(costs) == set(compared):
            found[f"{axis} = {max(common):,}"] = {name: by_size[max(common)] for name, by_size in costs.items()}
    return found


def _number(value: float | None, form: str = ".2f") -> str:
    return NOTHING if value is None or not np.isfinite(value) else f"{value:{form}}"


# --- pictures ------------------------------------------------------------------------------------------------------
LABELS = {"d_y": "lower-level variables $d_y$", "d_c": "coupled constraints $d_c$"}


def draw(rows_by_study: RowsByStudy) -> dict[str, Figure]:
    """Both axes side by side."""
    figure = new_figure(11.0, 4.4)
    for axes, (axis, study) in zip(figure.subplots(1, 2, sharey=True), STUDIES.items(), strict=True):
        for row in finished(rows_by_study, study):
            place = METHODS.index(row["method"])
            axes.loglog(
                row["step_sizes"], row["step_seconds"], "o-", markersize=3.5, color=f"C{place}", label=row["method"]
            )
        axes.set_xlabel(LABELS[axis])
        style_axes(axes)
        if axis == "d_y":
            axes.set_ylabel("seconds of one iteration")
        if axes.lines:
            axes.legend(frameon=False, fontsize=8)
    return {"cost": figure}


ITEM = Item(
    name="complexity",
    title="Table 7: what an iteration costs as the lower level grows",
    studies=studies,
    conclude=conclude,
    draw=draw,
    shown=(
        Shown(
            2,
            {
                "method": "Method",
                **{
                    f"{who}: power of {axis}": f"Power of {axis}, {title}"
                    for axis in AXES
                    for who, title in (("paper", "printed"), ("measured", "measured"))
                },
            },
            lambda row: row["method"] in ("blocc", PUBLISHED, "lv-hba", "gam"),
        ),
    ),
    seconds=(35.0, 400.0),
)
