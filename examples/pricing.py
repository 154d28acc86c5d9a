"""A power company sets three prices and builds a line; its customer decides when to buy.

    blocc solve examples/pricing.py
    blocc solve examples/pricing.py --x0 '{"price": [1, 1, 1], "capacity": 3}' --json
    blocc check examples/pricing.py

It shows what real problems need: variables with names and several parts, an equality, and a constraint of the follower
that the leader moves. Prices are capped, and in the evening the cap lies below what electricity costs the company. So
it builds a line that is too narrow: that is cheaper than serving everybody.
"""

import jax.numpy as jnp
import numpy as np

from blocc import BilevelProblem, Box, Product

# The day has three parts: night, day and evening.
WISH = np.array([1.0, 3.0, 4.0])  # when the customer would like to use electricity, in MWh
NEED = 8.0  # what it needs over the whole day, in MWh
COST = np.array([0.4, 0.7, 3.0])  # what the company pays for a MWh
LINE = 0.3  # what a MW of capacity costs the company
CAP = 2.5  # the highest price that the regulator allows


def upper(x, y):
    """The company's loss: what it pays, less what the customer pays it. blocc minimises, so profit has a minus."""
    # x and y have the structure of their sets below: here dictionaries.
    profit = jnp.sum((x["price"] - COST) * y["bought"]) - LINE * x["capacity"]
    return -profit


def lower(x, y):
    """The customer's bill, its discomfort at leaving its habits, and the fuel for its own generator."""
    bill = jnp.sum(x["price"] * y["bought"])
    discomfort = 0.5 * jnp.sum((y["bought"] - WISH) ** 2)
    # The generator keeps the company honest: without it the customer would have to pay any price.
    fuel = 0.5 * y["generated"] ** 2 + y["generated"]
    return bill + discomfort + fuel


def inequality(x, y):
    """No more can be bought at a time than the line carries: three numbers, none of which may be positive."""
    return y["bought"] - x["capacity"]


def equality(x, y):
    """Bought and generated electricity meet the need: this must be zero. It must be affine in y."""
    return jnp.sum(y["bought"]) + y["generated"] - NEED


problem = BilevelProblem(
    upper=upper,
    lower=lower,
    inequality=inequality,
    equality=equality,
    # A Product gives the variable its parts; each has a set, and the set knows the shape.
    x_set=Product({"price": Box(0, CAP, shape=3), "capacity": Box(0, 10)}),
    y_set=Product({"bought": Box(0, np.inf, shape=3), "generated": Box(0, np.inf)}),
    name="pricing",
)


if __name__ == "__main__":
    # The same in Python. Multipliers come back in the structure of the constraint functions, and they are prices: what
    # the customer would pay for a wider line in each part of the day, and what one more MWh of need costs it.
    from blocc import solve

    result = solve(problem)
    print(result)
    print("worth of a wider line:", result.multipliers.inequality)
    print("cost of one more MWh: ", -result.multipliers.equality)
