r"""The metro of Seville.

Which links should an operator build between 24 stations, and how large, when travellers may stay with what exists?

| | decides | wants | bound by |
| --- | --- | --- | --- |
| leader | the capacity $x_{ij} \ge 0$ of every link | fares less construction | |
| followers | paths, and whether to come at all | little time, with tastes that vary (a logit) | no link carries more than its capacity |

$$
\max_{x \ge 0} \; \sum_{o,d} w_{od}\, m_{od}\, y_{od} - \sum_{ij} c_{ij} x_{ij}
\quad \text{where } y \text{ is the travellers' own choice under } \sum_{od} w_{od}\, y^{od}_{ij} \le x_{ij}
$$
"""

# %%
from blocc.transport import design_network, read_network

network = read_network("seville")
design = design_network(network, starts=1)
print(design)

# %% Check
# The travellers' own problem at these capacities, written down once more in CVXPY and solved by Clarabel, earns the same,
# to Clarabel's accuracy: full links leave its interior point no room.
import cvxpy as cp
import numpy as np

people, links = network.demand, np.arange(network.n_links)
ends = np.zeros((network.n_links, network.n_nodes))
ends[links, network.head], ends[links, network.tail] = 1.0, -1.0
flow, share = cp.Variable((network.n_nodes, network.n_links), nonneg=True), cp.Variable(network.n_markets)
arriving = (flow @ ends)[network.origin, network.destination]
tastes = cp.entr(share) + cp.entr(1 - share)
cost = cp.sum(flow @ network.time) + people @ (cp.multiply(network.alternative_time, 1 - share) - tastes)
rules = [arriving == cp.multiply(people, share), cp.sum(flow, axis=0) <= design.capacity]
cp.Problem(cp.Minimize(cost), rules).solve(solver=cp.CLARABEL)
earned = people * network.revenue @ share.value - network.cost @ design.capacity
print(f"utility {earned:.2f} by Clarabel, {design.utility:.2f} by blocc")
assert abs(earned - design.utility) < 0.05

# %% Picture
# A map of Seville's stations: built links are lines, as wide as their capacity and coloured by use; dotted lines are candidates not built.
from blocc.report.transport.design_charts import plot_map

figure = plot_map(design)

# %% What breaks
# Travellers who are offered no better journey do not come, and links that nobody pays for are not built. At half the
# fares fewer links pay; at a twentieth none does, and the design that earns most is none at all.
from dataclasses import replace

for part in (2, 20):
    poorer = design_network(replace(network, revenue=network.revenue / part), starts=1)
    print(f"fares / {part}: {poorer.status.value}, {int(poorer.built.sum())} links, utility {poorer.utility:.1f}")
