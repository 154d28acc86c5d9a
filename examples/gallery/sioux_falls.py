r"""Sioux Falls: links to widen, and tolls.

Which of six congested links should a planner widen, and what would tolls on them achieve instead?

| | decides | wants | bound by |
| --- | --- | --- | --- |
| leader | added capacity $x_a$ (or a toll) on six links | little time lost in all, and little construction | $x \ge 0$ |
| followers | paths | the cheapest path each, given all others | all trips are made |

$$
\min_{x \ge 0} \; \sum_a t_a(v_a, x_a)\, v_a + 0.02 \sum_a x_a^2
\quad \text{where } v \text{ minimises } \sum_a \int_0^{v_a} t_a(s, x_a)\, ds \text{ over the flows of all trips}
$$
"""

# %%
from blocc.roads import assign, expand_network, read_road_network, second_best_tolls

roads = read_road_network("sioux-falls")
links = [16, 19, 29, 39, 48, 74]
design = expand_network(roads, candidates=links, cost=0.02, exponent=2.0, starts=1)
print(design)
tolls = second_best_tolls(roads, candidates=links, starts=1)
best = assign(roads, principle="system optimum")
print(
    f"total travel time with tolls {tolls.objective:.0f}, today {tolls.before.total_travel_time:.0f}, at best {best.total_travel_time:.0f}"
)

# %% Check
# Beckmann's objective at today's equilibrium of Sioux Falls is known to many digits: 4231335.287 in the units of the test
# problem's authors. And an independent descent: SciPy's minimiser, run on the exact travel time (widenings in units of a
# thousand), must not find a better widening.
import numpy as np
from scipy.optimize import minimize

today = assign(roads)
print(f"Beckmann today: {today.objective:.3f}")
place = [roads.link_ids.index(link) for link in links]


def loss(added):
    room = roads.capacity.copy()
    room[place] += 1000 * np.maximum(added, 0)
    return assign(roads, capacity=room, relative_gap=1e-9).total_travel_time + 0.02 * np.sum((1000 * added) ** 2)


other = minimize(loss, np.ones(6), method="L-BFGS-B", bounds=[(0, None)] * 6, options={"maxiter": 15})
print(
    f"blocc {design.objective:.0f}; SciPy with finite differences, not better by 0.1 %: {bool(other.fun > 0.999 * design.objective)}"
)

# %% Picture
# Volume over capacity of every link of Sioux Falls before and after, the difference, and the descent of the objective.
figure = design.plot()

# %% What breaks
# The gap between the answer and the proven bound does not close, however long one looks: it includes the cost of drivers
# choosing selfishly, which no widening removes.
print(f"objective {design.objective:.0f}, bound {design.bound:.0f}, gap {100 * design.gap:.1f} %")
