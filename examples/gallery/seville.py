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
# `verify_design` takes nothing from the run but the capacities: it solves the travellers' problem again, from the network,
# and compares every figure.
from blocc.transport import verify_design

verification = verify_design(network, design)
print(f"verified: {verification.ok}, {len(verification.checks)} claims")

# %% Picture
# A map of Seville's stations: built links are lines, as wide as their capacity and coloured by use; dotted lines are candidates not built.
from blocc.report.transport.design_figures import plot_map

figure = plot_map(design)

# %% What breaks
# Travellers who are offered no better journey do not come. With revenue halved the operator still builds, but less; the
# design says how many links pay, and nothing is built that does not.
from dataclasses import replace

poorer = design_network(replace(network, revenue=network.revenue / 2), starts=1)
print(f"{int(design.built.sum())} links at full fares, {int(poorer.built.sum())} at half fares")
print(f"utility {design.utility:.1f} and {poorer.utility:.1f}")
