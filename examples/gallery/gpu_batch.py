r"""Many starts in one batch, on a GPU or without.

How long do two thousand starts take in one compiled loop, and do they agree with single ones?

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
# Nothing names a device: JAX takes the GPU where there is one. The whole batch, inner solver and descent, is one program.
import jax

from blocc import solve_many
from blocc.problems.toy import local_minimisers, toy_problem

toy = toy_problem()
many = {starts: solve_many(toy, starts=starts, seed=0) for starts in (50, 500, 2000)}
print("platform:", jax.devices()[0].platform)
for starts, results in many.items():
    print(f"{starts} starts, {sum(one.success for one in results.results)} converged, {len(results.basins)} places")

# %% Check
# The valleys of f(x, x), by a grid and SciPy's scalar minimiser.
import numpy as np

ends = np.asarray(many[2000].x).reshape(-1, 1)
print("largest distance to a valley below 1e-4:", bool(np.abs(ends - local_minimisers()).min(axis=1).max() < 1e-4))

# %% Picture
# Seconds over the number of starts, compilation left out: the curve grows more slowly than the number of starts.
from matplotlib.figure import Figure

figure = Figure(figsize=(8, 5), layout="constrained")
axes = figure.subplots()
seconds = [results.seconds["run"] for results in many.values()]
axes.loglog(list(many), seconds, "o-", color="#0072B2", linewidth=2)
axes.set(xlabel="starts", ylabel="seconds, once compiled", title=f"One batch on {jax.devices()[0].device_kind}")
axes.grid(color="#e3e6e9", which="both")

# %% What breaks
# A GPU needs much work at once. The same program, once compiled, on one NVIDIA H200 and on the 16 CPU cores beside it
# (jax 0.11.2, seconds of the second call):
#
# | starts | H200 | 16 cores |
# | --- | --- | --- |
# | 50 | 0.78 | 0.16 |
# | 500 | 0.85 | 0.40 |
# | 2,000 | 1.71 | 1.07 |
# | 20,000 | 7.05 | 14.2 |
#
# Below some thousand starts of a small problem the CPU wins. A batch also takes as long as its slowest start, and what it
# leaves open is solved one by one afterwards; every start has a certificate of its own.
print("every certificate is exact:", all(one.certificate.exact for one in many[2000].results))
