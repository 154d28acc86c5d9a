"""Table 3 and Figure 10: utility and time on the network of Seville, apart from the others because it takes longest."""

from __future__ import annotations

from reproduction.item import Item, Shown
from reproduction.transport import COLUMNS, conclude, draw, on_network

ITEM = Item(
    name="seville",
    title="Table 3 and Figure 10: utility and time on the network of Seville",
    studies=lambda quick: on_network("seville", quick),
    conclude=conclude,
    draw=draw,
    shown=(Shown(0, {heading: title for heading, title in COLUMNS.items() if not heading.startswith("Alg")}),),
    seconds=(60.0, 700.0),
)
