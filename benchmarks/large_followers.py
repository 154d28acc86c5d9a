"""Large smooth followers: hyper-parameters of ridge, logistic and elastic-net regressions with many coefficients.

The leader tunes logarithms of penalties by the loss on validation data, the follower fits the coefficients. blocc is
measured beside what one would write by hand for these problems, in the same process and from the same start: implicit
gradients by conjugate gradients in plain JAX (a proximal gradient method for the elastic net), and SciPy's L-BFGS-B.
Every run is a process of its own, so that the peak of its memory is its own. Times include compilation; the seconds of
the processor ("cpu", of all cores together) tell more on a machine that others use too.

    python benchmarks/large_followers.py [--sizes 1000,10000,100000] [--kinds ridge,logistic,elastic-net]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

KINDS = ("ridge", "logistic", "elastic-net")
ROWS, FACTORS, RELEVANT = 200, 50, 20
LOW, HIGH = -10.0, 3.0


def make_data(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Correlated features: a few factors and noise; the target depends on a few of them."""
    generator = np.random.default_rng(seed)
    loadings = generator.standard_normal((FACTORS, n)) * (generator.uniform(size=(FACTORS, n)) < 0.1)
    features = generator.standard_normal((2 * ROWS, FACTORS)) @ loadings + generator.standard_normal((2 * ROWS, n))
    chosen = generator.choice(n, RELEVANT, replace=False)
    target = features[:, chosen] @ generator.standard_normal(RELEVANT)
    target = target / np.std(target) + 0.7 * generator.standard_normal(2 * ROWS)
    features /= np.sqrt(n / 10.0)
    return {"A": features[:ROWS], "b": target[:ROWS], "V": features[ROWS:], "c": target[ROWS:]}


def loss(kind: str, matrix, target, y):
    """Of a linear model on one half of the data."""
    if kind == "logistic":
        return jnp.mean(jnp.logaddexp(0.0, -jnp.sign(target) * (matrix @ y)))
    return 0.5 * jnp.mean((matrix @ y - target) ** 2)


def start_of(kind: str) -> np.ndarray:
    return np.array([-3.0, -6.0]) if kind == "elastic-net" else np.zeros(1)  # with a larger weight, all of y is zero


def by_blocc(kind: str, n: int) -> dict:
    from blocc import L1, BilevelProblem, Box, Reals, solve

    problem = BilevelProblem(
        upper=lambda x, y, d: loss(kind, d["V"], d["c"], y),
        lower=lambda x, y, d: loss(kind, d["A"], d["b"], y) + 0.5 * jnp.exp(x[0]) * jnp.sum(y**2),
        lower_terms=[L1(lambda x, d: jnp.exp(x[1]))] if kind == "elastic-net" else (),
        x_set=Box(LOW, HIGH, shape=start_of(kind).size),
        y_set=Reals(n),
        data=make_data(n),
    )
    begun = time.perf_counter()
    found = solve(problem, start_of(kind), time_limit=600.0)
    return {
        "seconds": time.perf_counter() - begun,
        "compile": found.seconds["compile"],
        "evaluations": found.counts["evaluations"],
        "value": found.upper_value,
        "status": found.status.value,
    }


def by_hand(kind: str, n: int) -> dict:
    """Implicit gradients as one would write them: solve, one adjoint system, L-BFGS-B."""
    jax.config.update("jax_enable_x64", True)
    data = {name: jnp.asarray(part) for name, part in make_data(n).items()}
    begun = time.perf_counter()

    def lower(x, y, d):
        return loss(kind, d["A"], d["b"], y) + 0.5 * jnp.exp(x[0]) * jnp.sum(y**2)

    gradient = jax.grad(lower, argnums=1)

    def newton(x, y, d):
        """Newton's method by conjugate gradients: the losses are tame enough for full steps."""

        def step(state):
            y, _, count = state
            slope = gradient(x, y, d)
            product = lambda v: jax.jvp(lambda z: gradient(x, z, d), (y,), (v,))[1]  # noqa: E731
            moved = y - jax.scipy.sparse.linalg.cg(product, slope, tol=1e-4, maxiter=1000)[0]
            return moved, jnp.max(jnp.abs(gradient(x, moved, d))), count + 1

        return jax.lax.while_loop(lambda s: (s[1] > 1e-10) & (s[2] < 50), step, (y, jnp.inf, 0))[0]

    def proximal(x, y, d):
        """Accelerated proximal gradient steps with restarts."""
        product = lambda v: jax.jvp(lambda z: gradient(x, z, d), (y,), (v,))[1]  # noqa: E731
        power = lambda _, v: (lambda w: w / jnp.linalg.norm(w))(product(v))  # noqa: E731
        vector = jax.lax.fori_loop(0, 30, power, jnp.cos(jnp.arange(n, dtype=y.dtype) ** 2))
        tau = 0.9 / jnp.linalg.norm(product(vector))
        shrink = lambda z: jnp.sign(z) * jnp.maximum(jnp.abs(z) - tau * jnp.exp(x[1]), 0.0)  # noqa: E731

        def step(state):
            y, ahead, momentum, _, count = state
            moved = shrink(ahead - tau * gradient(x, ahead, d))
            again = jnp.dot(ahead - moved, moved - y) > 0.0
            following = 0.5 * (1.0 + jnp.sqrt(1.0 + 4.0 * jnp.where(again, 1.0, momentum) ** 2))
            share = jnp.where(again, 0.0, (momentum - 1.0) / following)
            error = jnp.max(jnp.abs(moved - ahead)) / tau
            return moved, moved + share * (moved - y), following, error, count + 1

        first = (y, y, jnp.ones(()), jnp.inf, 0)
        return jax.lax.while_loop(lambda s: (s[3] > 1e-9) & (s[4] < 20000), step, first)[0]

    @jax.jit
    def value(x, y, d):
        y = proximal(x, y, d) if kind == "elastic-net" else newton(x, y, d)
        free = (y != 0.0).astype(y.dtype) if kind == "elastic-net" else jnp.ones_like(y)
        height, slope = jax.value_and_grad(lambda z: loss(kind, d["V"], d["c"], z))(y)
        product = lambda v: free * jax.jvp(lambda z: gradient(x, z, d), (y,), (free * v,))[1]  # noqa: E731
        price = jax.scipy.sparse.linalg.cg(product, free * slope, tol=1e-10, maxiter=2000)[0]
        pull = jax.vjp(lambda u: gradient(u, y, d), x)[1](-free * price)[0]
        if kind == "elastic-net":
            pull = pull - jnp.array([0.0, 1.0]) * jnp.exp(x[1]) * jnp.dot(jnp.sign(y), free * price)
        return height, pull, y

    warm, count = jnp.zeros(n), 0

    def objective(x):
        nonlocal warm, count
        height, slope, warm = value(jnp.asarray(x), warm, data)
        count += 1
        return float(height), np.asarray(slope)

    start = start_of(kind)
    ended = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=[(LOW, HIGH)] * start.size)
    return {
        "seconds": time.perf_counter() - begun,
        "compile": float("nan"),
        "evaluations": count,
        "value": float(ended.fun),
        "status": "ended",
    }


def measured(who: str, kind: str, n: int) -> dict:
    """One run in a process of its own."""
    command = [sys.executable, __file__, "--run", who, "--kinds", kind, "--sizes", str(n)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(ended.stderr)
    return json.loads(ended.stdout.splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--run", choices=("blocc", "hand"))
    given = parser.parse_args()
    sizes, kinds = [int(size) for size in given.sizes.split(",")], given.kinds.split(",")
    if given.run:
        found = {"blocc": by_blocc, "hand": by_hand}[given.run](kinds[0], sizes[0])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
        print(json.dumps({**found, "memory": peak, "cpu": time.process_time()}))
        return 0
    names = f"{'seconds':>8} {'cpu':>8} {'compile':>8} {'evals':>6} {'MB':>6} {'value':>11}"
    print(f"{'problem':<12} {'n':>7} {'who':<6} {names}  status", flush=True)
    worse = 0
    for kind in kinds:
        for n in sizes:
            rows = {who: measured(who, kind, n) for who in ("blocc", "hand")}
            for who, row in rows.items():
                print(
                    f"{kind:<12} {n:>7} {who:<6} {row['seconds']:>8.1f} {row['cpu']:>8.1f} {row['compile']:>8.1f} "
                    f"{row['evaluations']:>6} {row['memory']:>6.0f} {row['value']:>11.7f}  {row['status']}"
                )
            ours, theirs = rows["blocc"], rows["hand"]
            worse += ours["value"] > theirs["value"] + 1e-5 * (1.0 + abs(theirs["value"]))
            print(
                f"{'':<12} {'':>7} ratio  {ours['seconds'] / theirs['seconds']:>8.2f} "
                f"{ours['cpu'] / theirs['cpu']:>8.2f} {'':>8} {ours['evaluations'] / theirs['evaluations']:>6.2f} "
                f"{ours['memory'] / theirs['memory']:>6.2f} {ours['value'] - theirs['value']:>11.1e}",
                flush=True,
            )
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
