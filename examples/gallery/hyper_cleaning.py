r"""Hyper-cleaning.

Which training labels are wrong, if all that is certain is a small set of clean ones?

| | decides | wants | bound by |
| --- | --- | --- | --- |
| leader | a weight in $[0, 1]$ for each of 100 training samples | a small loss on 100 clean samples | |
| follower | a classifier $w$ | a small weighted training loss | |

$$
\min_{0 \le x \le 1} \; \frac{1}{m} \sum_{j} \ell(b_j\, v_j^\top w)
\quad \text{where } w \text{ minimises } \frac{1}{n} \sum_i x_i\, \ell(c_i\, a_i^\top w) + \frac{1}{20} \|w\|^2,
\quad \ell(z) = \ln(1 + e^{-z})
$$
"""

# %%
import jax.numpy as jnp
import numpy as np

from blocc import BilevelProblem, Box, Reals, solve

rng = np.random.default_rng(0)
A, V, T = (rng.standard_normal((n, 5)) for n in (100, 100, 2000))
truth = np.array([2.0, -1.0, 0.5, 1.5, 0.0])
right, clean, test = (np.where(M @ truth > 0, 1.0, -1.0) for M in (A, V, T))
wrong = rng.random(100) < 0.3  # three labels of ten are turned around
given = np.where(wrong, -right, right)


def loss(margin):
    return jnp.logaddexp(0.0, -margin)


problem = BilevelProblem(
    upper=lambda x, w: jnp.mean(loss(clean * (V @ w))),
    lower=lambda x, w: jnp.mean(x * loss(given * (A @ w))) + 0.05 * jnp.sum(w**2),
    x_set=Box(0.0, 1.0, shape=100),
    y_set=Reals(5),
    name="hyper-cleaning",
)
result = solve(problem, np.full(100, 0.5))
print(result)

# %% Check
# scikit-learn trains the same classifier with the weights that were found. Its coefficients must be the follower's answer,
# and its accuracy on samples that nobody has seen must be better than without weights.
from sklearn.linear_model import LogisticRegression


def fitted(weights):
    model = LogisticRegression(C=10.0, fit_intercept=False, tol=1e-10, max_iter=10_000)
    return model.fit(A, given, sample_weight=weights / 100)


model = fitted(np.asarray(result.x) + 1e-12)
print("coefficients agree:", bool(np.abs(model.coef_[0] - result.y).max() < 1e-2 * np.abs(result.y).max()))
print(
    f"accuracy on 2,000 fresh samples: {model.score(T, test):.2f}, without cleaning {fitted(np.ones(100)).score(T, test):.2f}"
)
print(f"mean weight of right labels {result.x[~wrong].mean():.2f}, of wrong ones {result.x[wrong].mean():.2f}")

# %% Picture
# Two histograms of the weights: samples with right labels pile up near one, those with wrong labels near zero.
from matplotlib.figure import Figure

figure = Figure(figsize=(8, 5), layout="constrained")
axes = figure.subplots()
axes.hist(
    [result.x[~wrong], result.x[wrong]],
    bins=20,
    range=(0, 1),
    label=["right label", "wrong label"],
    color=["#0072B2", "#E69F00"],
)
axes.set(xlabel="weight that the leader gave", ylabel="samples", title="Who is trusted")
axes.legend(frameon=False)

# %% What breaks
# With every weight at zero the follower has nothing to learn from, and its answer is w = 0. That is a valid point, with a
# value of ln 2, and the descent leaves it.
nothing = solve(problem, np.zeros(100))
print(nothing.status.value, f"from zero weights: {nothing.upper_value:.3f}, before ln 2 = {np.log(2):.3f}")
