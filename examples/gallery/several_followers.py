r"""Several followers.

Which one price should a seller set when three customers with different tastes each decide for themselves?

| | decides | wants | bound by |
| --- | --- | --- | --- |
| leader | the price $p$ and the stock $s$ | revenue less the cost of stock | $0 \le p \le 10$, $0 \le s \le 10$ |
| follower $i$ | how much to buy, $y_i$ | $a_i y_i - \tfrac12 b_i y_i^2 - p\, y_i$ large | $0 \le y_i$, at most a third of the stock |

$$
\max_{p, s} \; p \sum_i y_i - \tfrac15 s^2
\quad \text{where each } y_i \text{ minimises } p\, y_i - a_i y_i + \tfrac12 b_i y_i^2 \text{ over } 0 \le y_i \le \tfrac{s}{3}
$$
"""

# %%
# Followers who do not disturb each other are one follower who minimises the sum.
import jax.numpy as jnp
import numpy as np

from blocc import BilevelProblem, Box, Product, solve

TASTE, SATIATION = np.array([8.0, 6.0, 3.0]), np.array([1.0, 2.0, 0.5])

problem = BilevelProblem(
    upper=lambda x, y: 0.2 * x["stock"] ** 2 - x["price"] * jnp.sum(y),
    lower=lambda x, y: jnp.sum(x["price"] * y - TASTE * y + 0.5 * SATIATION * y**2),
    inequality=lambda x, y: y - x["stock"] / 3,
    x_set=Product({"price": Box(0, 10), "stock": Box(0, 10)}),
    y_set=Box(0, np.inf, shape=3),
    name="three customers",
)
result = solve(problem)
print(result)

# %% Check
# Each customer's answer is a formula: what the price leaves of the taste, over the satiation, between zero and a third of
# the stock. So the leader's profit can be computed on a fine grid of prices and stocks.
price, stock = np.meshgrid(np.linspace(0, 10, 2001), np.linspace(0, 10, 2001), indexing="ij")
bought = np.clip((TASTE - price[..., None]) / SATIATION, 0, stock[..., None] / 3)
profit = price * bought.sum(-1) - 0.2 * stock**2
print(f"best profit on the grid {profit.max():.3f}, by blocc {-result.upper_value:.3f}")

# %% Picture
# Profit over price and stock: a ridge with folds where customers leave one after the other; a star marks the answer.
from matplotlib.figure import Figure

figure = Figure(figsize=(8, 5), layout="constrained")
axes = figure.subplots()
shades = axes.contourf(price, stock, np.maximum(profit, -5), levels=25, cmap="cividis")
axes.plot(result.x["price"], result.x["stock"], "*", color="white", markeredgecolor="black", markersize=18)
axes.set(xlabel="price", ylabel="stock", title="The seller's profit")
figure.colorbar(shades, label="profit")

# %% What breaks
# At a price above every taste nobody buys, and small changes of the price change nothing. A start there is led off that
# plateau, but to another fold of the ridge: stationary, certified, and a little worse. The answer of one start is local.
far = solve(problem, {"price": 9.5, "stock": 0.0})
print(far.status.value, f"with profit {-far.upper_value:.3f}")
