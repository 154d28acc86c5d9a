r"""Prices for a follower who solves a linear program.

What should two toll roads charge when each group of drivers simply takes the cheaper way?

| | decides | wants | bound by |
| --- | --- | --- | --- |
| leader | tolls $x_1, x_2$ | revenue | $0 \le x \le 10$ |
| follower | the share $y_k$ of group $k$ on its toll road | a small bill | $0 \le y \le 1$, and room for ten drivers |

$$
\max_{0 \le x \le 10} \; \sum_k n_k \, x_{r(k)} y_k
\quad \text{where } y \text{ minimises } \sum_k n_k \bigl((c_k + x_{r(k)})\, y_k + d_k (1 - y_k)\bigr), \;
\sum_k n_k y_k \le 10
$$
"""

# %%
# A linear follower jumps from corner to corner, so the leader's revenue has cliffs: descent ends at the edge of one of them.
# `solve_global` proves which is the highest.
import jax.numpy as jnp
import numpy as np

from blocc import BilevelProblem, Box, solve_global

DRIVERS = np.array([2.0, 5.0, 4.0, 2.0])
ON_TOLL, ON_FREE = np.array([2.0, 3.0, 2.0, 1.0]), np.array([11.0, 7.0, 6.0, 10.0])
ROAD = np.array([0, 0, 1, 1])  # which toll a group meets


def bill(x, y):
    return jnp.sum(DRIVERS * ((ON_TOLL + x[ROAD]) * y + ON_FREE * (1 - y)))


problem = BilevelProblem(
    upper=lambda x, y: -jnp.sum(DRIVERS * x[ROAD] * y),
    lower=bill,
    inequality=lambda x, y: jnp.sum(DRIVERS * y) - 10.0,
    x_set=Box(0.0, 10.0, shape=2),
    y_set=Box(0.0, 1.0, shape=4),
    name="tolls",
)
result = solve_global(problem)
print(result)


# %% Check
# Brute force: a grid of tolls, and at each of them the drivers' linear program by sorting what each group saves (it is a
# knapsack with fractions). Ties go to the leader, as in the problem.
def revenue(toll):
    saved = ON_FREE - ON_TOLL - toll[ROAD]
    room, earned = 10.0, 0.0
    for k in sorted(range(4), key=lambda k: (-round(saved[k], 9), -toll[ROAD][k])):
        if saved[k] >= -1e-9 and room > 0:
            taken = min(DRIVERS[k], room)
            room, earned = room - taken, earned + taken * toll[ROAD][k]
    return earned


axis = np.linspace(0, 10, 201)
table = np.array([[revenue(np.array([a, b])) for b in axis] for a in axis])
best = np.unravel_index(table.argmax(), table.shape)
print(f"best of {table.size} tolls: {table.max():.3f} at {axis[best[0]]:.2f}, {axis[best[1]]:.2f}")
print(f"blocc: {-result.upper_value:.3f}, and proven that nothing exceeds {-result.bound:.3f}")

# %% Picture
# Revenue over the two tolls is a landscape of terraces with cliffs between them; a star marks the proven optimum, where two cliffs meet.
from matplotlib.figure import Figure

figure = Figure(figsize=(8, 5), layout="constrained")
axes = figure.subplots()
shades = axes.pcolormesh(axis, axis, table.T, cmap="cividis", shading="nearest", rasterized=True)
axes.plot(*result.x, "*", color="white", markeredgecolor="black", markersize=18)
axes.set(xlabel="toll of road 1", ylabel="toll of road 2", title="Revenue: terraces and cliffs")
figure.colorbar(shades, label="revenue")

# %% What breaks
# Descent finds the top of the terrace it starts on: a local optimum, which may earn less.
from blocc import solve

local = solve(problem, np.array([8.5, 3.0]))
print(local.status.value, f"with revenue {-local.upper_value:.2f}; the optimum is {-result.upper_value:.2f}")
assert local.success
assert -local.upper_value < -result.upper_value - 1
