r"""Fees of garages: a whole application in one file.

Which fees should a city set for its garages, and how many spaces should it open, when drivers choose between them and the bus?

| | decides | wants | bound by |
| --- | --- | --- | --- |
| leader: the city | fees $\phi_j$ and open shares $s_j$ of the spaces $n_j$ | fees, less upkeep and harm | $0 \le \phi \le 20$, $0 \le s \le 1$ |
| follower: the drivers | the share $y_{ij}$ of district $i$ that parks at $j$ (0: the bus) | a cheap ride, by a logit rule | open spaces |

$$
\max_{\phi, s} \; \sum_{ij} d_i y_{ij} (\phi_j - h_j) - \sum_j u_j n_j s_j
\quad \text{where } y \text{ minimises } \sum_{ij} d_i y_{ij} (c_{ij} + \phi_j + \ln y_{ij}), \;
\sum_i d_i y_{ij} \le n_j s_j
$$
"""

# %%
# `examples/parking.py` is an application made with `blocc.kit`: this problem, its answer with a certificate,
# files, a page, a verification by another way, and commands, in some 200 lines. CONTRIBUTING.md tells how it is made.
import sys
from pathlib import Path

FILE = "parking.py"  # beside this file, or in the folder above
sys.path += [str(folder) for folder in Path(__file__).resolve().parents[:2] if (folder / FILE).exists()]
from parking import PLAN, TOWN, plan_parking, verify_plan

plan = plan_parking(TOWN, starts=2)
print(plan)

# %% Check
# The drivers once more, by the dual of their problem in SciPy, and decisions nearby.
print(verify_plan(TOWN, plan))

# %% Picture
# What the city gains over the two fees, all spaces that are needed being open; a star marks the plan.
import numpy as np
from matplotlib.figure import Figure

axis = np.linspace(0, 12, 49)
table = np.empty((len(axis), len(axis)))
for i, one in enumerate(axis):
    for j, other in enumerate(axis):
        fee = np.array([one, other])
        shares = TOWN.choices(fee, TOWN.spaces)
        table[i, j] = TOWN.worth(fee, TOWN.drivers @ shares[:, 1:], shares)
figure = Figure(figsize=(8, 5), layout="constrained")
axes = figure.subplots()
shades = axes.contourf(axis, axis, table.T, 24, cmap="cividis")
axes.plot(*plan.fee, "*", color="white", markeredgecolor="black", markersize=18)
axes.set(xlabel="fee of garage 1", ylabel="fee of garage 2", title="What the city gains in a day")
figure.colorbar(shades, label="gain")

# %% What breaks
# Files that were changed: the digest notices, and whoever recomputes it meets the verification.
import dataclasses

forged = dataclasses.replace(plan, fee=1.2 * plan.fee)
print(PLAN.format, "- forged fees verified:", verify_plan(TOWN, forged).ok)
