"""Fees of garages, when drivers choose where to park: a whole application in one file, made with ``blocc.kit``.

A city sets the fee of each garage and how many of its spaces it opens. Drivers of each district choose a garage or the
bus by a logit rule, which is the least of cost and entropy; garages that are full make them choose otherwise. The city
earns fees, pays for open spaces, and counts what every car in the centre costs its neighbours.

    python examples/parking.py plan town --out runs/parking
    python examples/parking.py verify runs/parking town
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
import typer
from jax.scipy.special import entr
from scipy.optimize import minimize

from blocc import BilevelProblem, Box, Product
from blocc.cli.common import Output, Search, make_app
from blocc.judge.verification import Verification
from blocc.kit.answers import Answer, answer_document, answered, read_record, same_record
from blocc.kit.checks import CertificateRow, judged
from blocc.kit.claims import Claims
from blocc.kit.documents import Column


# --- the question -------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class City:
    """Districts and garages; all money per day, ``cost`` by district and garage in one row after the other."""

    name: str
    drivers: np.ndarray  #: of each district
    bus: np.ndarray  #: what the bus costs them, time included
    cost: np.ndarray  #: what driving to a garage costs, without its fee
    spaces: np.ndarray  #: that each garage may open
    upkeep: np.ndarray  #: of an open space
    harm: np.ndarray  #: of a car in the garage, to its neighbours
    spread: float = 1.0  #: of tastes: the scale of the logit rule
    most: float = 20.0  #: the highest fee

    def problem(self) -> BilevelProblem:
        """The bilevel program; y are shares of each district's drivers, the bus first."""
        shape = (len(self.drivers), len(self.spaces))
        room = self.spaces / self.drivers.sum()  # spaces in units of all drivers: all variables of order one

        def cars(y: Any) -> Any:
            return self.drivers @ y[:, 1:]

        def lower(x: Any, y: Any) -> Any:
            paid = jnp.column_stack([self.bus, self.cost.reshape(shape) + x["fee"]])
            return jnp.sum(self.drivers[:, None] * (y * paid - self.spread * entr(y))) / self.drivers.sum()

        return BilevelProblem(
            upper=lambda x, y: cars(y) @ (self.harm - x["fee"]) + x["open"] @ (self.upkeep * self.spaces),
            lower=lower,
            inequality=lambda x, y: cars(y) / self.drivers.sum() - x["open"] * room,
            equality=lambda x, y: jnp.sum(y, axis=1) - 1.0,
            x_set=Product({"fee": Box(0.0, self.most, shape=shape[1]), "open": Box(0.0, 1.0, shape=shape[1])}),
            y_set=Box(0.0, 1.0, shape=(shape[0], shape[1] + 1)),
            name=self.name,
        )

    def choices(self, fee: np.ndarray, opened: np.ndarray) -> np.ndarray:
        """The drivers' shares by another way: the dual, in what they would pay for a space beyond its fee."""
        cost = self.cost.reshape(len(self.drivers), -1) + fee

        def shares(extra: np.ndarray) -> np.ndarray:
            paid = -np.column_stack([self.bus, cost + extra]) / self.spread
            weight = np.exp(paid - paid.max(axis=1, keepdims=True))
            return np.asarray(weight / weight.sum(axis=1, keepdims=True))

        def dual(extra: np.ndarray) -> tuple[float, np.ndarray]:
            paid = -np.column_stack([self.bus, cost + extra]) / self.spread
            top = paid.max(axis=1)
            saved = self.spread * self.drivers @ (top + np.log(np.exp(paid - top[:, None]).sum(axis=1)))
            return float(saved + extra @ opened), opened - self.drivers @ shares(extra)[:, 1:]

        tight = {"ftol": 1e-15, "gtol": 1e-10 * self.drivers.sum(), "maxiter": 1000}
        found = minimize(dual, np.zeros_like(fee), jac=True, bounds=[(0.0, None)] * len(fee), options=tight)
        return shares(found.x)

    def worth(self, fee: np.ndarray, opened: np.ndarray, shares: np.ndarray) -> float:
        """What the city gains in a day: fees, less the upkeep of open spaces and the harm of cars."""
        return float((self.drivers @ shares[:, 1:]) @ (fee - self.harm) - opened @ self.upkeep)


TOWN = City(
    "town",
    drivers=np.array([400.0, 250.0, 350.0]),
    bus=np.array([9.0, 11.0, 8.0]),
    cost=np.array([2.0, 4.0, 3.0, 1.0, 5.0, 3.5]),
    spaces=np.array([300.0, 500.0]),
    upkeep=np.array([1.5, 0.5]),
    harm=np.array([1.0, 0.2]),
)


# --- the answer and its proof -------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Plan(Answer):
    """Fees and open spaces, and what drivers do then; the objective is what the city gains in a day."""

    city: City
    fee: np.ndarray
    opened: np.ndarray  #: spaces
    share: np.ndarray  #: of each district's drivers, the bus first, one district after the other
    residual: float  #: of the drivers' conditions

    @property
    def name(self) -> str:
        """Of the city."""
        return self.city.name

    @property
    def cars(self) -> np.ndarray:
        """In each garage."""
        return np.asarray(self.city.drivers @ self.share.reshape(len(self.city.drivers), -1)[:, 1:])

    def decided(self) -> list[str]:
        """A line for each garage."""
        rows = zip(self.fee, self.cars, self.opened, strict=True)
        return [
            f"garage {k}: fee {fee:.4g}, {cars:.4g} cars on {room:.4g} spaces"
            for k, (fee, cars, room) in enumerate(rows, 1)
        ]

    def checks(self) -> list[CertificateRow]:
        """The certificate."""
        beyond = float(np.max(self.cars - self.opened, initial=0.0) / self.city.drivers.sum())
        return [judged("drivers: residual", self.residual, 1e-6), judged("drivers: beyond the spaces", beyond, 1e-6)]


def plan_parking(city: City, *, starts: int = 3, **options: Any) -> Plan:
    """The fees and open spaces that are worth most to the city; options are those of ``solve_many``, and ``report``."""
    best, run = answered(city.problem(), starts, **options)
    share, fee, opened = np.asarray(best.y), np.asarray(best.x["fee"]), city.spaces * np.asarray(best.x["open"])
    gain, residual = city.worth(fee, opened, share), best.certificate.stationarity
    return Plan(city=city, fee=fee, opened=opened, share=share.ravel(), objective=gain, residual=residual, **run)


def verify_plan(city: City, plan: Plan, tolerance: float = 1e-4) -> Verification:
    """Recompute every claim from the city and the decision, the drivers by their dual; try decisions nearby."""
    claims = Claims(city.name, tolerance, plan.success)
    claims.holds("city", "the one that is given", same_record(city, plan.city), "another one", so="so it is")
    shares = city.choices(plan.fee, plan.opened)
    claims.near("shares", "of the drivers", float(np.abs(shares.ravel() - plan.share).max()), tolerance)
    gain, size = city.worth(plan.fee, plan.opened, shares), float(city.drivers @ city.bus)  # all that rides may cost
    claims.same("gain", plan.objective, gain, tolerance * size)
    here, most = (
        np.concatenate([plan.fee, plan.opened]),
        np.concatenate([np.full_like(plan.fee, city.most), city.spaces]),
    )
    better = 0.0
    for step in np.vstack([np.diag(most), -np.diag(most)]) * 1e-2:  # each decision by a hundredth of what it may be
        fee, opened = np.split(np.clip(here + step, 0.0, most), 2)
        better = max(better, city.worth(fee, opened, city.choices(fee, opened)) - gain)
    claims.add("no better decision nearby", "none", f"{better:.1e} more", better <= tolerance * size)
    return claims.concluded()


# --- files, page, commands ----------------------------------------------------------------------------------------
PLAN = answer_document(
    Plan,
    "city",
    title="parking plan",
    tables={
        "garages": {
            "garage": Column(lambda plan: np.arange(1, len(plan.fee) + 1), "its number"),
            "fee": Column("fee", "of a day", "money"),
            "spaces": Column("opened", "that are open"),
            "cars": Column("cars", "that park there"),
        }
    },
    meanings={
        "drivers: residual": "How far shares are from the least of cost and entropy.",
        "drivers: beyond the spaces": "Cars without a space, as a part of all drivers.",
    },
    verify=verify_plan,
    assumed="Drivers choose by a logit rule, and know how full garages are.",
    is_maximised=True,
)

CityName = Annotated[str, typer.Argument(help="town, or a JSON file with the fields of a city.", metavar="CITY")]


def plan_command(*, city: CityName, search: Search, output: Output) -> None:
    """Choose fees and open spaces."""
    search.run(output, PLAN, plan_parking, read_city(city), starts=3, is_maximised=True)


def verify_command(*, plan: Annotated[Path, typer.Argument(help="The folder of a plan.")], city: CityName) -> None:
    """Check a plan by another way."""
    found = PLAN.verify(plan, read_city(city))
    print(found)
    raise typer.Exit(0 if found.ok else 6)


def read_city(source: str) -> City:
    """The town of this file, or a city out of a JSON file."""
    return TOWN if source == "town" else read_record(City, source)


if __name__ == "__main__":
    make_app("Fees of garages, when drivers choose where to park.", plan_command, verify_command)()
