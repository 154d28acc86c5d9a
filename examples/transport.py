"""A small town plans a tram: from tables of one's own to a design and its files.

    python examples/transport.py [FOLDER]

Four stops, five candidate connections in both directions, and a market between every two stops. Times are disutilities:
here ten minutes count 1. Demand and capacity are in hundreds of passengers an hour, cost and revenue in the same money.
"""

import itertools
import sys

from blocc.transport import TransportNetwork, design_network, write_design, write_network

STOPS = {"Harbour": (0.0, 0.0), "Market": (1.0, 0.2), "Station": (2.0, 0.0), "Campus": (1.1, 1.2)}
PEOPLE = {"Harbour": 2.0, "Market": 4.0, "Station": 3.0, "Campus": 2.5}
CONNECTIONS = {  # minutes by tram
    ("Harbour", "Market"): 6.0,
    ("Market", "Station"): 6.0,
    ("Market", "Campus"): 7.0,
    ("Station", "Campus"): 9.0,
    ("Harbour", "Campus"): 10.0,
}
TODAY = 25.0  # minutes between any two stops, on foot or by bus


def town() -> TransportNetwork:
    """The network; a row that is wrong would be named by from_tables."""
    links = [
        {"from": start, "to": end, "time": minutes / 10, "cost": 0.25 * minutes}
        for (one, other), minutes in CONNECTIONS.items()
        for start, end in ((one, other), (other, one))
    ]
    markets = [
        {
            "origin": start,
            "destination": end,
            "demand": PEOPLE[start] * PEOPLE[end] / 4,
            "revenue": 2.0,
            "alternative_time": TODAY / 10,
        }
        for start, end in itertools.permutations(STOPS, 2)
    ]
    nodes = [{"id": name, "x": x, "y": y} for name, (x, y) in STOPS.items()]
    return TransportNetwork.from_tables(nodes, links, markets, name="town")


def main(folder: str) -> None:
    network = town()
    design = design_network(network, starts=3)
    print(design)
    for a in design.built.nonzero()[0]:
        start, end = network.nodes[network.tail[a]], network.nodes[network.head[a]]
        print(f"  {start:>8} -> {end:<8} capacity {design.capacity[a]:.3f}, used {design.utilisation[a]:.0%}")
    write_network(network, f"{folder}/town.json")  # blocc design FOLDER/town.json does all of this again
    for path in write_design(design, folder):
        print(f"written: {path}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/town")
