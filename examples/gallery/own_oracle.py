r"""Bring your own oracle.

Can a formula for the follower's answer take the place of the general solver, and who notices when it is wrong?

| | decides | wants | bound by |
| --- | --- | --- | --- |
| leader | a signal $x_0$ and a cap $x_1$ | answers near a target | $0 \le x \le 3$ |
| follower | $y \in \mathbb{R}^3$ | $y_i = a_i x_0$ | $y_i \le x_1$ |

$$
\min_x \; \tfrac12 \|y - t\|^2 + 0.05\, x_1^2
\quad \text{where } y \text{ minimises } \tfrac12 \|y - a x_0\|^2 \text{ over } y \le x_1
$$
"""

# %%
# An oracle minimises $s f + \gamma g$ over the follower's set, for any weights. Here that is a weighted mean, cut at the cap;
# the multiplier is the remaining gradient.
import jax.numpy as jnp
import numpy as np

from blocc import BilevelProblem, Box, Reals, solve
from blocc.inner import InnerCode, InnerOracle, Multipliers, finish

TARGET, GAIN = np.array([2.0, 1.0, 0.5]), np.array([1.0, 2.0, 3.0])


class Clipped(InnerOracle):
    share = 1.0  # of the cap that counts

    def cold(self, flat):
        return ()  # no warm start

    def solve(self, flat, x, weights, warm, tolerance):
        total = weights.upper + weights.lower
        free = (weights.upper * TARGET + weights.lower * GAIN * x[0]) / total
        y = jnp.minimum(free, self.share * x[1])
        prices = Multipliers(inequality=total * (free - y), equality=jnp.zeros(0))
        return finish(flat, x, y, prices, weights, iterations=1, code=InnerCode.CONVERGED, warm=())


PARTS = {
    "upper": lambda x, y: 0.5 * jnp.sum((y - TARGET) ** 2) + 0.05 * x[1] ** 2,
    "lower": lambda x, y: 0.5 * jnp.sum((y - GAIN * x[0]) ** 2),
    "inequality": lambda x, y: y - x[1],
    **{"x_set": Box(0.0, 3.0, shape=2), "y_set": Reals(3)},
}
print(own := solve(BilevelProblem(**PARTS, oracle=Clipped(), name="own oracle")))

# %% Check
# The follower's answer is min(a x_0, x_1). A grid over both of the leader's numbers needs no solver at all.
first, second = np.meshgrid(np.linspace(0, 3, 1201), np.linspace(0, 3, 1201), indexing="ij")
answer = np.minimum(GAIN * first[..., None], second[..., None])
values = 0.5 * ((answer - TARGET) ** 2).sum(-1) + 0.05 * second**2
print(f"least value on a grid of {values.size} points: {values.min():.5f}; by the oracle: {own.upper_value:.5f}")

# %% Picture
# The leader's objective over the signal and the cap: one long valley with a kink where the cap begins to bind, and the answer in it.
from matplotlib.figure import Figure

figure = Figure(figsize=(8, 5), layout="constrained")
axes = figure.subplots()
shades = axes.contourf(first, second, np.log10(values - values.min() + 1e-3), levels=20, cmap="cividis")
axes.plot(*own.x, "*", color="white", markeredgecolor="black", markersize=18)
axes.set(xlabel="signal $x_0$", ylabel="cap $x_1$", title="The leader's objective, and the answer")
figure.colorbar(shades, label="log10 of what is lost")

# %% What breaks
# An oracle that cuts at 95 % of the cap. Its residuals are computed from the functions above, and the answer is judged
# without it. With gamma kept fixed the oracle is all that the run has: it stalls, and the message says why. By default
# blocc finishes on the follower's own conditions, and ends at the right answer all the same.


class Wrong(Clipped):
    share = 0.95


doubtful = BilevelProblem(**PARTS, oracle=Wrong(), name="wrong oracle")
caught, saved = solve(doubtful, gamma=100.0), solve(doubtful)
print(f"fixed gamma: {caught.status.value}. {caught.message.partition(';')[0]}.")
print(f"by default: {saved.status.value}, upper value {saved.upper_value:.5f}")
assert not caught.success
assert solve(BilevelProblem(**PARTS, oracle=Clipped()), gamma=100.0).success
assert abs(saved.upper_value - own.upper_value) < 1e-6
