"""What every command about roads takes: which roads, and in which units."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blocc.cli.common import needing, positive
from blocc.errors import InputError
from blocc.networks.checked_rows import finite

if TYPE_CHECKING:
    from blocc.roads import RoadNetwork

_SOURCE = "sioux-falls, or a *_net.tntp file, a folder of GMNS files, a .json file."


def _figure(help_text: str, *flags: str) -> Any:
    return typer.Option(*flags, help=help_text, rich_help_panel="Figures of the network")


@dataclass(frozen=True)
class RoadSource:
    """Which roads, and in which units: the options of every command that reads them."""

    network: Annotated[str, typer.Argument(help=_SOURCE, metavar="NETWORK", show_default=False)]
    demand_factor: Annotated[float, _figure("Multiplies all trips.")] = 1.0
    capacity_factor: Annotated[float, _figure("Multiplies all capacities.")] = 1.0
    time_factor: Annotated[float, _figure("Multiplies all times, and tolls with them.")] = 1.0
    default_bpr: Annotated[
        str | None, _figure("b and power of links that have none, such as 0.15,4, instead of refusing.")
    ] = None
    drop_unreachable: Annotated[
        bool, _figure("Leave out trips that no path serves, instead of refusing.", "--drop-unreachable")
    ] = False
    demand_omx: Annotated[Path | None, _figure("Take the trips from this OMX file.")] = None
    matrix: Annotated[str | None, _figure("Which matrix of the OMX file, where it has several.")] = None
    mapping: Annotated[str | None, _figure("Which mapping of the OMX file names the zones.")] = None

    def read(self) -> RoadNetwork:
        """The network."""
        with needing("roads need Numba", "city"):
            from blocc.roads import read_road_network
        factors = {name: getattr(self, f"{name}_factor") for name in ("demand", "capacity", "time")}
        positive(**{f"{name}_factor": factor for name, factor in factors.items()})
        found = read_road_network(
            self.network,
            demand_omx=self.demand_omx,
            matrix=self.matrix,
            mapping=self.mapping,
            default_bpr=self._bpr(),
            drop_unreachable=self.drop_unreachable,
        )
        return found.scaled(**factors)

    def _bpr(self) -> tuple[float, float] | None:
        if self.default_bpr is None:
            return None
        parts = [finite(part.strip()) for part in self.default_bpr.split(",")]
        if len(parts) != 2 or None in parts:
            raise InputError(
                f"--default-bpr must be two numbers, b and power, such as 0.15,4; got {self.default_bpr!r}"
            )
        return parts[0], parts[1]  # type: ignore[return-value]
