r"""The toy and its landscape.

Where do two hundred random starts end when the leader's objective has several valleys?

| | decides | wants | bound by |
| --- | --- | --- | --- |
| leader | $x \in [0, 3]$ | a small $f(x, y)$ | |
| follower | $y$ | $y = 2x$ | $y \le x$ |

$$
\min_{0 \le x \le 3} \; \frac{e^{2 - y}}{2 + \cos 6x} + \frac{1}{2} \ln\bigl((4x - 2)^2 + 1\bigr)
\quad \text{where } y \text{ minimises } (y - 2x)^2 \text{ over } y \le x
$$
"""

# %%
import jax.numpy as jnp
import numpy as np

from blocc import BilevelProblem, Box, Reals, solve_many

toy = BilevelProblem(
    upper=lambda x, y: jnp.exp(2 - y) / (2 + jnp.cos(6 * x)) + jnp.log((4 * x - 2) ** 2 + 1) / 2,
    lower=lambda x, y: (y - 2 * x) ** 2,
    inequality=lambda x, y: y - x,
    x_set=Box(0, 3),
    y_set=Reals(),
    name="toy",
)
many = solve_many(toy, starts=200, seed=1)
print(many)

# %% Check
# The follower answers y = x, so the leader really minimises f(x, x). A grid of 30,001 points finds every valley of that
# curve without any solver. Each start must have ended in one of them.
grid = np.linspace(0, 3, 30_001)
curve = np.exp(2 - grid) / (2 + np.cos(6 * grid)) + np.log((4 * grid - 2) ** 2 + 1) / 2
padded = np.pad(curve, 1, constant_values=np.inf)
valleys = grid[(padded[1:-1] <= padded[:-2]) & (padded[1:-1] <= padded[2:])]
away = np.abs(np.asarray(many.x).reshape(-1, 1) - valleys).min(axis=1)
print("valleys of the grid:", valleys)
print("every start ended within a step of the grid:", bool(away.max() <= 1.01e-4))

# %% Picture
# The curve f(x, x) over x from 0 to 3 has four valleys; dots mark where the starts ended, with their numbers.
from matplotlib.figure import Figure

figure = Figure(figsize=(8, 5), layout="constrained")
axes = figure.subplots()
axes.plot(grid, curve, color="#0072B2", linewidth=2)
for basin in many.basins:
    axes.plot(basin.x, basin.value, "o", color="#C8102E", markersize=9)
    axes.annotate(
        f"{len(basin)} starts", (float(basin.x), basin.value), (0, -18), textcoords="offset points", ha="center"
    )
axes.set(xlabel="x", ylabel="f(x, x)", title="Where 200 starts end")
axes.margins(y=0.15)

# %% What breaks
# One start finds one valley. From x = 0.3 the answer is a local minimum, with a certificate that says so: stationary,
# and the follower's answer exact. It does not say that no other valley is deeper. Many starts, or
# [`solve_global`](../how-to.md#global-answers), do.
from blocc import solve

one = solve(toy, 0.3)
print(one.status.value, "at x =", round(float(one.x), 4), "with f =", round(one.upper_value, 4))
print("the best of 200 starts has f =", round(many.best.upper_value, 4))
