r"""Inverse optimisation.

Which tastes explain the purchases that we have seen, when the buyer is known to act rationally?

| | decides | wants | bound by |
| --- | --- | --- | --- |
| leader | tastes $\theta \in \mathbb{R}^4$ | predicted purchases near the observed ones | $0 \le \theta \le 5$ |
| follower | purchases $y_k$ on day $k$ | $\tfrac12 \|y_k\|^2 - \theta^\top y_k$ small | the day's budget and prices, $y_k \ge 0$ |

$$
\min_{0 \le \theta \le 5} \; \sum_k \|y_k - \hat y_k\|^2
\quad \text{where } y_k \text{ minimises } \tfrac12 \|y_k\|^2 - \theta^\top y_k \text{ over } p_k^\top y_k \le b_k, \; y_k \ge 0
$$
"""

# %%
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from blocc import BilevelProblem, Box, solve

rng = np.random.default_rng(3)
PRICES, BUDGET = rng.uniform(0.5, 2.0, (12, 4)), rng.uniform(2.0, 6.0, 12)
TRUTH = np.array([3.0, 0.7, 2.0, 1.5])


def buys(taste, prices, budget):  # by SciPy, one day at a time
    rules = {"type": "ineq", "fun": lambda y: budget - prices @ y}
    start = np.full(4, budget / prices.sum() / 2)
    return minimize(lambda y: 0.5 * y @ y - taste @ y, start, bounds=[(0, None)] * 4, constraints=rules, tol=1e-12).x


observed = np.array([buys(TRUTH, p, b) for p, b in zip(PRICES, BUDGET, strict=True)])
problem = BilevelProblem(
    upper=lambda taste, y: jnp.sum((y - observed) ** 2),
    lower=lambda taste, y: 0.5 * jnp.sum(y**2) - jnp.sum(y @ taste),
    inequality=lambda taste, y: jnp.sum(PRICES * y, axis=1) - BUDGET,
    x_set=Box(0.0, 5.0, shape=4),
    y_set=Box(0.0, np.inf, shape=(12, 4)),
    name="tastes",
)
result = solve(problem)
print(result)

# %% Check
# The purchases were made by SciPy from tastes that the problem does not know. They must come back, and they must explain
# days that were not used.
fresh = [
    buys(result.x, p, b) - buys(TRUTH, p, b)
    for p, b in zip(rng.uniform(0.5, 2, (5, 4)), rng.uniform(2, 6, 5), strict=True)
]
print("largest error of a taste below 1e-3:", bool(np.abs(result.x - TRUTH).max() < 1e-3))
print("largest error of a purchase on five new days below 1e-3:", bool(np.abs(fresh).max() < 1e-3))

# %% Picture
# Bars of the four tastes, true and recovered, of equal height; beside them predicted over observed purchases on the diagonal.
from matplotlib.figure import Figure

figure = Figure(figsize=(8, 4.2), layout="constrained")
bars, dots = figure.subplots(1, 2)
bars.bar(np.arange(4) - 0.2, TRUTH, 0.4, label="true", color="#0072B2")
bars.bar(np.arange(4) + 0.2, result.x, 0.4, label="recovered", color="#E69F00", hatch="//")
bars.set(title="Tastes", xlabel="good")
bars.legend(frameon=False)
dots.axline((0, 0), slope=1, color="#666666", linewidth=0.8)
dots.plot(observed.ravel(), np.asarray(result.y).ravel(), "o", color="#009E73", markersize=5)
dots.set(title="Purchases", xlabel="observed", ylabel="predicted")

# %% What breaks
# A good that is never bought tells nothing about its taste beyond an upper bound. Here the second good is made expensive: any
# small enough taste explains the days equally well. The fit is perfect, and the taste is not the true one.
EXPENSIVE = PRICES * np.array([1.0, 40.0, 1.0, 1.0])
seen = np.array([buys(TRUTH, p, b) for p, b in zip(EXPENSIVE, BUDGET, strict=True)])
blind = solve(
    BilevelProblem(
        upper=lambda taste, y: jnp.sum((y - seen) ** 2),
        lower=problem.lower,
        inequality=lambda taste, y: jnp.sum(EXPENSIVE * y, axis=1) - BUDGET,
        x_set=problem.x_set,
        y_set=problem.y_set,
    ),
    np.zeros(4),
)
print("bought of the expensive good:", bool(seen[:, 1].max() > 1e-6))
print(f"fit {blind.upper_value:.1e}, error of its taste {abs(blind.x[1] - TRUTH[1]):.1f}")
