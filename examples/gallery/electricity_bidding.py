r"""Bidding in a market for electricity.

What should a power station offer, and how much of it, when the market's operator then buys from the cheapest?

| | decides | wants | bound by |
| --- | --- | --- | --- |
| leader | its bid $b$ and the amount $q$ it offers | profit at the market's price $\lambda$ | $10 \le b \le 60$, $0 \le q \le 80$ |
| follower | who produces how much, $g$ | the demand of 100 at least cost | $g_1 \le q$, and what the others can |

$$
\max_{b, q} \; (\lambda - 10)\, g_1
\quad \text{where } g \text{ minimises } b\, g_1 + 12 g_2 + \tfrac14 g_2^2 + 25 g_3 + \tfrac14 g_3^2
\text{ over } g_1 + g_2 + g_3 = 100 : \lambda
$$
"""

# %%
# The market's price is a multiplier of the follower, and the leader's revenue a product of price and amount. Where the
# operator's choice is optimal that product is linear: $\lambda g_1 = b\, g_1 + q \mu$, with $\mu$ the price of the limit $q$.
import cvxpy as cp
import numpy as np

from blocc.cvxpy import BilevelProblem, dual

bid, amount = cp.Parameter(name="bid", bounds=[10, 60]), cp.Parameter(name="amount", bounds=[0, 80])
g = cp.Variable(3, nonneg=True, name="g")
cost = bid * g[0] + 12 * g[1] + 0.25 * cp.square(g[1]) + 25 * g[2] + 0.25 * cp.square(g[2])
limit = g[0] <= amount
market = cp.Problem(cp.Minimize(cost), [cp.sum(g) == 100, limit, g[1] <= 40, g[2] <= 60])
profit = bid * g[0] + amount * dual(limit) - 10 * g[0]
problem = BilevelProblem(cp.Maximize(profit), market, [bid, amount], name="bidding")
result = problem.solve({"bid": 20.0, "amount": 60.0})
print(result)


# %% Check
# The market can be cleared by hand: the others supply what the price tells them, and the station what is left, up to its
# offer. A grid of bids and amounts then gives the best profit without any solver.
def others(price):
    return np.clip((price - 12) / 0.5, 0, 40) + np.clip((price - 25) / 0.5, 0, 60)


def earned(bid, amount):
    low, high = bid, np.full_like(bid, 200.0)
    for _ in range(60):  # the price at which the others leave no more than the amount
        middle = (low + high) / 2
        is_low = others(middle) < 100 - amount
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    price = np.where(100 - others(bid) <= amount, bid, high)
    return (price - 10) * np.clip(100 - others(price), 0, amount)


bids, amounts = np.meshgrid(np.linspace(10, 60, 201), np.linspace(0, 80, 321), indexing="ij")
table = earned(bids, amounts)
print(f"best profit on a grid of {table.size} offers {table.max():.1f}, by blocc {result.upper_value:.1f}")

# %% Picture
# Profit over bid and amount. A red line encloses the offers that earn the best profit, up to 2: a band at an amount of 67 for all low bids, which turns upwards at a bid of 27 for all larger amounts; a star marks the answer in it.
from matplotlib.figure import Figure

figure = Figure(figsize=(8, 5), layout="constrained")
axes = figure.subplots()
shades = axes.contourf(bids, amounts, table, levels=25, cmap="cividis")
axes.contour(bids, amounts, table, levels=[table.max() - 2], colors="#C8102E")
axes.plot(float(result.x["bid"]), float(result.x["amount"]), "*", color="white", markeredgecolor="black", markersize=18)
axes.set(xlabel="bid", ylabel="amount offered", title="Profit of the power station")
figure.colorbar(shades, label="profit")

# %% What breaks
# Offering everything at true cost is honest and earns less, because it lowers the market price. The difference is what a
# regulator would like to know. For whole networks with prices at every bus: [`blocc.power`](../power.md).
assert table[0, -1] < table.max() - 1
print(f"an honest offer earns {table[0, -1]:.1f}, the best one {table.max():.1f}")
