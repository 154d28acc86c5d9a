r"""Braess's paradox.

Can closing a free road make everybody faster, and does a toll do the same?

| | decides | wants | bound by |
| --- | --- | --- | --- |
| leader | a toll on the middle road | little time lost in all | toll $\ge 0$ |
| followers | one of three paths | the cheapest path, given all others | six units of traffic |

$$
\min_{\tau \ge 0} \; \sum_a t_a(v_a)\, v_a
\quad \text{where } v \text{ minimises } \sum_a \int_0^{v_a} \bigl(t_a(s) + \tau_a\bigr)\, ds
$$
"""

# %%
# Two roads take ten minutes for each unit of traffic, two take fifty minutes plus one for each unit, and the
# middle road takes ten plus one for each.
from blocc.roads import RoadNetwork, assign, second_best_tolls

LINKS = [("A", "B", 1e-6, 1e7), ("A", "C", 50, 0.02), ("B", "D", 50, 0.02), ("C", "D", 1e-6, 1e7), ("B", "C", 10, 0.1)]
roads = RoadNetwork.from_tables(
    nodes=[{"id": name} for name in "ABCD"],
    links=[
        {"from": a, "to": b, "free_flow_time": time, "b": slope, "power": 1, "capacity": 1}
        for a, b, time, slope in LINKS
    ],
    trips=[{"origin": "A", "destination": "D", "demand": 6}],
    name="Braess",
)
today = assign(roads)
tolls = second_best_tolls(roads, candidates=[5], starts=2)
print(tolls)

# %% Check
# With pencil and paper: with the middle road two units take each of the three paths, and everybody needs 92 minutes.
# Without it three and three, and 83. The toll's answer is an optimum of the whole, so it must give 83 x 6 = 498. It empties
# the road: one link is tolled, nobody pays, and the revenue is 0.
print(f"today {today.total_travel_time / 6:.3f} minutes each, with the toll {tolls.objective / 6:.3f}")

# %% Picture
# Minutes of each driver over the toll on the middle road: 92 without a toll, falling to 83 where the road has become empty, and flat from there on; a dot marks the answer.
import numpy as np
from matplotlib.figure import Figure

charged = np.linspace(0, 25, 51)
minutes = [assign(roads, toll=np.array([0, 0, 0, 0, toll])).total_travel_time / 6 for toll in charged]
figure = Figure(figsize=(8, 5), layout="constrained")
axes = figure.subplots()
axes.plot(charged, minutes, color="#0072B2", linewidth=2)
axes.plot(tolls.toll[4], tolls.objective / 6, "o", color="#C8102E", markersize=9)
axes.set(
    xlabel="toll on the middle road (minutes)",
    ylabel="minutes of each driver",
    title="Braess's paradox, undone by a toll",
)
axes.grid(color="#e3e6e9")

# %% What breaks
# Beyond the toll that empties the road nothing changes any more: all those tolls are equally good, and which of them is
# reported depends on the start. Their travel times agree.
import numpy as np

higher = assign(roads, toll=np.array([0, 0, 0, 0, 40.0]))
assert abs(higher.total_travel_time - tolls.objective) < 1e-3
print(f"with a toll of 40: {higher.total_travel_time / 6:.3f} minutes each")
