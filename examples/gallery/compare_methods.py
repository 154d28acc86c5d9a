r"""All methods on one problem.

How do the published methods do on a problem whose answer is known, each judged at the follower's exact answer?

| | decides | wants | bound by |
| --- | --- | --- | --- |
| leader | $x \in [0, 3]$ | $x$ near 3 and $y$ near 1 | |
| follower | $y$ | $y = 2x$ | $y \le x$ |

$$
\min_{0 \le x \le 3} \; (x - 3)^2 + (y - 1)^2
\quad \text{where } y \text{ minimises } (y - 2x)^2 \text{ over } y \le x
$$
"""

# %%
from blocc import BilevelProblem, Box, Reals, compare

problem = BilevelProblem(
    upper=lambda x, y: (x - 3) ** 2 + (y - 1) ** 2,
    lower=lambda x, y: (y - 2 * x) ** 2,
    inequality=lambda x, y: y - x,
    x_set=Box(0.0, 3.0),
    y_set=Reals(),
    name="capacity",
)
comparison = compare(problem, 0.5, time_limit=20)
for row in comparison.entries:
    print(f"{row.method:<14} {row.status:<16} f = {row.upper_value:.4f}")
print(f"certificate of blocc's answer\n{comparison['blocc'].result.certificate}")

# %% Check
# The follower answers y = x, so the leader minimises (x - 3)^2 + (x - 1)^2: its minimum is 2, at x = 2.
print("answers that are right:", sorted(row.method for row in comparison.entries if abs(row.upper_value - 2) < 1e-3))

# %% Picture
# Upper values over seconds for every method, and how far each one's own answer of the follower is from the exact one.
figure = comparison.plot()

# %% What breaks
# Methods differ in what they demand. Where a demand is not met the row says which, and no number is made up.
for row in comparison.entries:
    if not row.applies:
        print(f"{row.method}: {row.why_not}")
print(
    "methods without the right answer:",
    sorted(row.method for row in comparison.entries if not abs(row.upper_value - 2) < 1e-3),
)
