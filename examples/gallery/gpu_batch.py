r"""Many starts in one batch, on a GPU or without.

How long do two thousand starts take in one compiled loop, and does each of them end in a valley?

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
# A batch of another size is another program: nearly all of the time at the end of this page goes into compiling three.
import jax

from blocc import solve_many
from blocc.problems.toy import toy_problem

toy = toy_problem()
many = {starts: solve_many(toy, starts=starts, seed=0) for starts in (50, 500, 2000)}
print("platform:", jax.devices()[0].platform)
for starts, results in many.items():
    print(f"{starts} starts, {sum(one.success for one in results.results)} converged, {len(results.basins)} places")
print(many[2000].best)

# %% Check
# The follower answers y = x, so the leader minimises a function of one number. A fine grid in NumPy finds its valleys, and
# SciPy's scalar minimiser their bottoms.
import numpy as np
from scipy.optimize import minimize_scalar


def truth(x):
    return np.exp(2 - x) / (2 + np.cos(6 * x)) + 0.5 * np.log((4 * x - 2) ** 2 + 1)


grid = np.linspace(0, 3, 30001)
low = 1 + np.flatnonzero((truth(grid[1:-1]) < truth(grid[:-2])) & (truth(grid[1:-1]) < truth(grid[2:])))
valleys = [minimize_scalar(truth, bounds=(grid[k - 1], grid[k + 1]), options={"xatol": 1e-10}).x for k in low]
ends = np.asarray(many[2000].x).reshape(-1, 1)
print("valleys:", np.round(valleys, 4))
print("largest distance to a valley below 1e-4:", bool(np.abs(ends - valleys).min(axis=1).max() < 1e-4))
assert abs(many[2000].best.upper_value - min(map(truth, valleys))) < 1e-6

# %% Picture
# Seconds of a second call, when all is compiled, over the number of starts: a line well below the dashed one of proportional growth.
from matplotlib.figure import Figure

figure = Figure(figsize=(8, 5), layout="constrained")
axes = figure.subplots()
seconds = [solve_many(toy, starts=starts, seed=0).seconds["run"] for starts in many]
axes.loglog(list(many), seconds, "o-", color="#0072B2", linewidth=2, label="measured")
axes.loglog([50, 2000], [seconds[0], 40 * seconds[0]], "--", color="#777777", label="in proportion to the starts")
axes.legend(frameon=False)
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
# For small problems the CPU is faster up to a few thousand starts. A batch also takes as long as its slowest start, and what it
# leaves open is solved one by one afterwards; every start has a certificate of its own.
print("every certificate is exact:", all(one.certificate.exact for one in many[2000].results))
