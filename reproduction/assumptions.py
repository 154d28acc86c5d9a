"""Table 1 of the paper: which lower-level constraints each method can have, asked of this package's methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from blocc._lib.precision import double_precision
from blocc.methods import registry
from blocc.methods.base import meets
from blocc.problem import BilevelProblem
from blocc.report.study.study_views import Findings, Observation, Table
from blocc.result import Status
from blocc.sets import Box, Reals
from blocc.solve import solve
from blocc.studies.study import Row, Study, select
from reproduction.item import Item, RowsByStudy
from reproduction.summary import finished, is_complete
from reproduction.verdicts import OURS, paper

STUDY = "assumptions"
METHODS = ("blocc", "lv-hba", "gam", "bvfsm", "aipod")
#: What the paper prints: constraints, whether first derivatives suffice, and the complexity.
PRINTED = {
    "blocc": ("convex in y, LICQ; affine in y", "yes", "eps^-2.5; eps^-1.5"),
    "lv-hba": ("convex in (x, y)", "yes", "eps^-3"),
    "gam": ("convex in (x, y), LICQ", "no", "none"),
    "bvfsm": ("other requirements", "yes", "none"),
    "aipod": ("A y - b(x) = 0", "no", "eps^-1.5"),
}
KINDS = {
    "curved": "gc convex in y alone",
    "jointly": "gc convex in (x, y)",
    "affine": "gc affine",
    "bounded": "gc affine, Y a box",
    "equality": "A y = b(x)",
}


def example(kind: str) -> BilevelProblem:
    """A small strongly convex lower level with constraints of this kind."""
    coupled: dict[str, Any] = {
        "curved": {"inequality": lambda x, y: jnp.sum(y**2) * (2.0 + jnp.sin(3.0 * x[0])) - 1.0},
        "jointly": {"inequality": lambda x, y: jnp.sum(y**2) + jnp.sum(x**2) - 2.0},
        "equality": {"equality": lambda x, y: jnp.sum(y) - jnp.sin(x[0])},
    }.get(kind, {"inequality": lambda x, y: jnp.sum(y) - jnp.sum(x) - 1.0})
    return BilevelProblem(
        upper=lambda x, y: jnp.sum((y - 1.0) ** 2) + jnp.sum(x**2),
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        x_set=Box(-1.0, 1.0, (2,)),
        y_set=Box(-3.0, 3.0, (2,)) if kind == "bounded" else Reals(2),
        **coupled,
    )


def ask(method: str, kind: str, seed: int) -> Row:
    """What a method lacks on a problem of this kind, as far as random points tell; BLOCC has to solve it."""
    if method == "blocc":
        status = solve(example(kind), np.full(2, 0.3), seed=seed, progress=False).status
        return {"applies": status is Status.CONVERGED, "needs": ""}
    flat = example(kind).flat
    with double_precision():
        missing = [
            demand
            for demand in registry.kind_of(method).demands
            if not meets(flat, demand, np.full(2, 0.3), np.full(2, 0.1), seed)
        ]
    return {"applies": not missing, "needs": "; ".join(demand.value for demand in missing)}


def studies(quick: bool) -> list[Study]:
    """Every method on every kind; one size."""
    return [Study(STUDY, "reproduction.assumptions:ask", {"method": list(METHODS), "kind": list(KINDS)})]


def conclude(rows_by_study: RowsByStudy) -> Findings:
    """The printed table beside what the methods take."""
    rows = finished(rows_by_study, STUDY)
    lines = []
    for method, (constraints, first_order, complexity) in PRINTED.items():
        line = {
            "method": method,
            "printed: constraints": constraints,
            "printed: first order": first_order,
            "printed: complexity": complexity,
        }
        for kind, title in KINDS.items():
            (row,) = select(rows, method=method, kind=kind) or ({},)
            line[title] = {True: "yes", False: "no", None: "/"}[row.get("applies")]
        lines.append(line)
    notes = (
        "The printed rates are upper bounds; those of BLOCC are measured by the item epsilon.",
        "A method takes what its demands allow, as checked on random points. GAM's program takes constraints that are "
        "convex in y alone, too: its theory wants more. BLOCC, this package's default, has to solve the problem.",
    )
    return Findings([Table("Table 1: constraints below", lines, notes)], _observations(rows_by_study, rows))


def _observations(rows_by_study: RowsByStudy, rows: Sequence[Row]) -> list[Observation]:
    complete = is_complete(rows_by_study, STUDY)
    takes = {(row["method"], row["kind"]): row["applies"] for row in rows}
    said = lambda *pairs: ", ".join(f"{m} on {k}: {'yes' if takes.get((m, k)) else 'no'}" for m, k in pairs)  # noqa: E731
    hba = [("lv-hba", kind) for kind in ("curved", "jointly", "affine")]
    aipod = [("aipod", kind) for kind in KINDS]
    gam = [("gam", "affine"), ("gam", "bounded")]
    every = [("blocc", kind) for kind in KINDS]
    cases: list[tuple[str, bool, list[tuple[str, str]], str]] = []
    if complete:
        cases = [
            ("LV-HBA wants constraints that are convex in (x, y)", not takes[hba[0]] and takes[hba[1]], hba, "Table 1"),
            ("AiPOD takes equalities alone", [takes[one] for one in aipod] == [False] * 4 + [True], aipod, "Table 1"),
            ("GAM cannot have a bounded Y", takes[gam[0]] and not takes[gam[1]], gam, "Section 4.3"),
            ("BLOCC solves all of them", all(takes[one] for one in every), every, ""),
        ]
    return [
        Observation(statement, bool(holds), said(*pairs), paper(place) if place else OURS)
        for statement, holds, pairs, place in cases
    ]


ITEM = Item(
    name="assumptions",
    title="Table 1: which constraints the methods can have",
    studies=studies,
    conclude=conclude,
    seconds=(10.0, 10.0),
)
