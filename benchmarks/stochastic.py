"""Error of x against gradient calls: method="stochastic" beside SOBA, SABA, F2SA and a variant of F2CSA.

    python -m benchmarks.stochastic [--epochs 400] [--seeds 3] [--out FOLDER]

Three problems of 1,000 samples at each level in batches of 50: least squares at both levels, logistic regression with a
penalty for each feature, and least squares with five linear constraints that couple the levels. The error is the
distance to the x of ``solve(problem)``, and for logistic regression, which is flat in x, what f(x, y(x)) is above its
value there; both relative to the start. A call is a gradient of one sample's f or g, or a product with one of its
second derivatives. ``stochastic`` takes its automatic numbers. The others are written below from their papers, with the
papers' exponents, and each of them gets the best of twelve pairs of lengths for each problem and seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc import Batches, BilevelProblem, Box, Reals, solve
from blocc.kit.figure import line_style, new_figure

SAMPLES, SIZE = 1000, 50
LENGTHS_Y, LENGTHS_X = (2.0, 1.0, 0.3), (10.0, 1.0, 0.1, 0.01)  #: of 1 / L of the follower; the best pair counts
PENALTIES = 10.0  #: gamma of F2SA in its first step, and of F2CSA throughout
INNER = 10  #: inner steps of F2CSA


class Case(NamedTuple):
    """A problem of samples, with its constraints C y <= D x + e."""

    name: str
    f: Callable[..., Any]
    g: Callable[..., Any]
    data: dict[str, np.ndarray]
    box: tuple[np.ndarray, np.ndarray]
    n_y: int
    rows: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def errors(self, x: np.ndarray, ways: np.ndarray, answer: np.ndarray) -> np.ndarray:
        """Of points, the last axis their entries; relative to that of x."""
        if self.name != "logistic regression":
            return np.linalg.norm(ways - answer, axis=-1) / np.linalg.norm(x - answer)
        data = {name: jnp.asarray(part) for name, part in self.data.items()}

        def reduced(x: Any) -> Any:
            """f at the follower's answer, by Newton's method, which ends at rounding after six steps here."""
            slope = lambda y: jax.grad(self.g, argnums=1)(x, y, data)  # noqa: E731
            newton = lambda _, y: y - jnp.linalg.solve(jax.jacfwd(slope)(y), slope(y))  # noqa: E731
            return self.f(x, jax.lax.fori_loop(0, 10, newton, jnp.zeros(self.n_y)), data)

        with jax.enable_x64(True):
            points = np.clip(np.nan_to_num(ways, nan=0.0), *self.box).reshape(-1, len(x))
            values = np.asarray(jax.jit(lambda all_x: jax.lax.map(reduced, all_x))(jnp.asarray(points)))
            least, first = float(reduced(jnp.asarray(answer))), float(reduced(jnp.asarray(x)))
        return ((values - least) / (first - least)).reshape(ways.shape[:-1])

    @property
    def problem(self) -> BilevelProblem:
        bound = None
        if self.rows is not None:
            C, D, e = self.rows
            bound = lambda x, y, d: C @ y - D @ x - e  # noqa: E731
        return BilevelProblem(
            upper=self.f, lower=self.g, inequality=bound, x_set=Box(*self.box), y_set=Reals(self.n_y), data=self.data
        )


def squares(seed: int, coupled: bool = False) -> Case:
    draw = np.random.default_rng(seed)
    n_x, n_y = 5, 20
    data = {name: draw.standard_normal((SAMPLES, n_y)) / np.sqrt(n_y) for name in ("A", "P")}
    data |= {name: draw.standard_normal((SAMPLES, n_x)) / np.sqrt(n_x) for name in ("B", "Q")}
    mix, target = draw.standard_normal((n_x, n_y)), draw.standard_normal(n_y)
    data["t"] = data["A"] @ target + 0.3 * draw.standard_normal(SAMPLES)
    data["s"] = data["P"] @ draw.standard_normal(n_y) + 0.3 * draw.standard_normal(SAMPLES)

    def g(x: Any, y: Any, d: Any) -> Any:
        return 0.5 * jnp.mean((d["A"] @ (y - mix.T @ x) - d["t"]) ** 2) + 0.05 * jnp.sum(y**2)

    def f(x: Any, y: Any, d: Any) -> Any:
        return 0.5 * jnp.mean((d["P"] @ y + d["Q"] @ x - d["s"]) ** 2) + 0.05 * jnp.sum(x**2)

    rows = None
    if coupled:
        rows = draw.standard_normal((5, n_y)) / np.sqrt(n_y), draw.standard_normal((5, n_x)) / np.sqrt(n_x), np.zeros(5)
    name = "least squares, coupled constraints" if coupled else "least squares"
    return Case(name, f, g, data, (-2 * np.ones(n_x), 2 * np.ones(n_x)), n_y, rows)


def logistic(seed: int) -> Case:
    draw = np.random.default_rng(seed)
    n = 20
    truth = draw.standard_normal(n) * (np.arange(n) < 10)
    A, P = draw.standard_normal((2, SAMPLES, n))
    sign = lambda M: np.where(draw.random(SAMPLES) < 1 / (1 + np.exp(-M @ truth)), 1.0, -1.0)  # noqa: E731
    data = {"A": A, "t": sign(A), "P": P, "s": sign(P)}

    def g(x: Any, y: Any, d: Any) -> Any:
        return jnp.mean(jnp.logaddexp(0.0, -d["t"] * (d["A"] @ y))) + 0.5 * jnp.sum(jnp.exp(x) * y**2)

    def f(x: Any, y: Any, d: Any) -> Any:
        return jnp.mean(jnp.logaddexp(0.0, -d["s"] * (d["P"] @ y)))

    return Case("logistic regression", f, g, data, (-6 * np.ones(n), np.zeros(n)), n)


# --- the others, from their papers ------------------------------------------------------------------------------------
class Sampler(NamedTuple):
    """Derivatives on one of the batches that the samples are cut into, and projections."""

    case: Case
    parts: dict[str, jax.Array]

    def at(self, i: Any) -> dict[str, jax.Array]:
        return {name: part[i] for name, part in self.parts.items()}

    def f(self, i: Any, x: Any, y: Any) -> tuple[Any, Any]:
        return jax.grad(self.case.f, argnums=(0, 1))(x, y, self.at(i))

    def g(self, i: Any, x: Any, y: Any) -> tuple[Any, Any]:
        return jax.grad(self.case.g, argnums=(0, 1))(x, y, self.at(i))

    def products(self, i: Any, x: Any, y: Any, v: Any) -> tuple[Any, Any]:
        """Of v with d_xy g and d_yy g."""
        along = lambda a, b: jax.grad(self.case.g, argnums=1)(a, b, self.at(i)) @ v  # noqa: E731
        return jax.grad(along, argnums=(0, 1))(x, y)

    def project(self, x: Any) -> Any:
        return jnp.clip(x, *self.case.box)


def soba(on: Sampler, long_y: Any, long_x: Any, state: Any, k: Any, key: Any) -> Any:
    """Dagreou, Ablin, Vaiter, Moreau (2022): everything at once, all lengths falling by k^(-1/2)."""
    x, y, v = state
    i, j = jax.random.randint(key, (2,), 0, SAMPLES // SIZE)
    fall = (1.0 + k) ** -0.5
    f_x, f_y = on.f(i, x, y)
    g_y, (cross, hessian) = on.g(j, x, y)[1], on.products(j, x, y, v)
    return on.project(x - long_x * fall * (f_x + cross)), y - long_y * fall * g_y, v - long_y * fall * (hessian + f_y)


def saba_start(on: Sampler, x: Any, y: Any) -> Any:
    """SABA begins with the derivatives of every batch."""
    v, every = jnp.zeros_like(y), jnp.arange(SAMPLES // SIZE)
    memory = (
        jax.vmap(lambda i: on.f(i, x, y))(every),
        jax.vmap(lambda i: on.g(i, x, y)[1])(every),
        jax.vmap(lambda i: on.products(i, x, y, v))(every),
    )
    return x, y, v, memory


def saba(on: Sampler, long_y: Any, long_x: Any, state: Any, k: Any, key: Any) -> Any:
    """The same with the variance reduction of SAGA, and lengths that stay."""
    x, y, v, memory = state
    i, j = jax.random.randint(key, (2,), 0, SAMPLES // SIZE)
    fresh = on.f(i, x, y), on.g(j, x, y)[1], on.products(j, x, y, v)
    index = (i, j, j)
    reduced, kept = [], []
    for one, new, at in zip(memory, fresh, index, strict=True):
        reduced.append(jax.tree.map(lambda table, now, at=at: now - table[at] + table.mean(axis=0), one, new))
        kept.append(jax.tree.map(lambda table, now, at=at: table.at[at].set(now), one, new))
    (f_x, f_y), g_y, (cross, hessian) = reduced
    return on.project(x - long_x * (f_x + cross)), y - long_y * g_y, v - long_y * (hessian + f_y), tuple(kept)


def f2sa(on: Sampler, long_y: Any, long_x: Any, state: Any, k: Any, key: Any) -> Any:
    """Kwon, Kwon, Wright, Nowak (2023): y and z, then x; exponents 4/7, 5/7 and 1/7, batches of their own for each."""
    x, y, z = state
    i = jax.random.randint(key, (6,), 0, SAMPLES // SIZE)
    weight = PENALTIES * (1.0 + k) ** (1 / 7)
    step_y, step_x = long_y * (1.0 + k) ** (-4 / 7), long_x * (1.0 + k) ** (-5 / 7)
    new_z = z - step_y * on.g(i[0], x, z)[1]
    new_y = y - step_y * (on.f(i[1], x, y)[1] / weight + on.g(i[2], x, y)[1])
    slope = on.f(i[3], x, new_y)[0] + weight * (on.g(i[4], x, new_y)[0] - on.g(i[5], x, new_z)[0])
    return on.project(x - step_x * slope), new_y, new_z


def f2csa(on: Sampler, long_y: Any, long_x: Any, state: Any, k: Any, key: Any) -> Any:
    """After Kornowski et al. (2024): inner loops for the follower with its multipliers, and for the penalised y.

    The penalty has gamma times the Lagrangian's excess, and gamma^2 / 2 times squares of rows that are active.
    """
    x, y, z, m = state
    assert on.case.rows is not None
    C, D, e = on.case.rows
    size, gamma = np.linalg.norm(C, 2), PENALTIES
    keys = jax.random.randint(key, (3 * INNER + 3,), 0, SAMPLES // SIZE)
    h = lambda v: C @ v - D @ x - e  # noqa: E731

    def follower(t: Any, pair: Any) -> Any:
        z, m = pair
        new = z - long_y * (on.g(keys[t], x, z)[1] + C.T @ m)
        return new, jnp.maximum(m + 0.5 / (long_y * size**2) * (2.0 * h(new) - h(z)), 0.0)

    z, m = jax.lax.fori_loop(0, INNER, follower, (z, m))

    def penalised(t: Any, y: Any) -> Any:
        slope = on.f(keys[INNER + t], x, y)[1] + gamma * (on.g(keys[2 * INNER + t], x, y)[1] + C.T @ m)
        active = (m > 0.0) | (h(y) > 0.0)
        return y - slope_length * (slope + gamma**2 * C.T @ jnp.where(active, h(y), 0.0))

    slope_length = 1.0 / (gamma / long_y + gamma**2 * size**2)
    y = jax.lax.fori_loop(0, INNER, penalised, y)
    active = (m > 0.0) | (h(y) > 0.0)
    last = keys[3 * INNER :]
    slope = on.f(last[0], x, y)[0] + gamma * (on.g(last[1], x, y)[0] - on.g(last[1], x, z)[0])
    slope = slope - gamma**2 * D.T @ jnp.where(active, h(y), 0.0)
    return on.project(x - long_x * (1.0 + k) ** -0.5 * slope), y, z, m


#: Step, start beside x, and calls of one step on a batch.
OTHERS: dict[str, tuple[Any, Callable[..., Any], int]] = {
    "SOBA": (soba, lambda on, x, y: (x, y, jnp.zeros_like(y)), 4),
    "SABA": (saba, saba_start, 4),
    "F2SA": (f2sa, lambda on, x, y: (x, y, y), 6),
    "F2CSA": (f2csa, lambda on, x, y: (x, y, y, jnp.zeros(5)), 3 * INNER + 3),
}
CASES: dict[str, tuple[Callable[[int], Case], tuple[str, ...]]] = {
    "squares": (squares, ("SOBA", "SABA", "F2SA")),
    "logistic": (logistic, ("SOBA", "SABA", "F2SA")),
    "coupled": (lambda seed: squares(seed, coupled=True), ("F2CSA",)),
}
POINTS = 40  #: of a curve


def other(case: Case, name: str, x: np.ndarray, answer: np.ndarray, calls: int, seed: int) -> tuple[Any, Any]:
    """Calls and errors along a run, by the best pair of lengths."""
    step, start, cost = OTHERS[name]
    parts = {key: jnp.asarray(part).reshape(-1, SIZE, *part.shape[1:]) for key, part in case.data.items()}
    on, y = Sampler(case, parts), jnp.zeros(case.n_y)
    hessian = jax.hessian(case.g, argnums=1)(jnp.asarray(x), y, {key: jnp.asarray(d) for key, d in case.data.items()})
    curvature = float(np.linalg.eigvalsh(np.asarray(hessian)).max())
    stretch = max(calls // (POINTS * SIZE * cost), 1)

    def run(long_y: Any, long_x: Any) -> Any:
        def several(state: Any, part: Any) -> Any:
            def one(t: Any, state: Any) -> Any:
                k = part * stretch + t
                return step(on, long_y, long_x, state, k, jax.random.fold_in(jax.random.key(seed), k))

            state = jax.lax.fori_loop(0, stretch, one, state)
            return state, state[0]

        return jax.lax.scan(several, start(on, jnp.asarray(x), y), jnp.arange(POINTS))[1]

    pairs = [(a / curvature, b / curvature) for a in LENGTHS_Y for b in LENGTHS_X]
    ways = np.asarray(jax.jit(jax.vmap(lambda pair: run(*pair)))(jnp.asarray(pairs)))
    errors = case.errors(x, ways, answer)
    best = int(np.argmin(np.where(np.isfinite(errors[:, -1]), errors[:, -1], np.inf)))
    return SIZE * cost * stretch * np.arange(1, POINTS + 1), errors[best]


def ours(case: Case, x: np.ndarray, answer: np.ndarray, epochs: int, seed: int) -> tuple[Any, Any]:
    """The same for method="stochastic": three calls for each sample of a step, f at y, g at y and at z."""
    seen: list[tuple[float, np.ndarray]] = []

    def watch(state: Any) -> None:
        seen.append((3.0 * SIZE * state.row.evaluations / 2.0, state.x))

    batches = Batches(case.data, size=SIZE, seed=seed)
    solve(case.problem, x, method="stochastic", batches=batches, epochs=epochs, callback=watch)
    calls, ways = (np.array(column) for column in zip(*seen, strict=True))
    return calls, case.errors(x, ways, answer)


def measure(name: str, epochs: int, seeds: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Calls and the geometric mean of errors over seeds, for each method."""
    make, methods = CASES[name]
    found: dict[str, list[tuple[Any, Any]]] = {}
    for seed in range(seeds):
        case = make(seed)
        x = np.asarray(case.problem.x_set.interior_flat()) + 0.5
        exact = solve(case.problem, x)
        assert exact.success, exact.message
        answer = np.asarray(exact.x)
        found.setdefault("stochastic", []).append(ours(case, x, answer, epochs, seed))
        calls = int(found["stochastic"][-1][0][-1])
        with jax.enable_x64(True):
            for method in methods:
                found.setdefault(method, []).append(other(case, method, x, answer, calls, seed))
    mean = lambda runs: np.exp(np.mean([np.log(np.maximum(error, 1e-16)) for _, error in runs], axis=0))  # noqa: E731
    return {method: (runs[0][0], mean(runs)) for method, runs in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    figure = new_figure(11.0, 3.6)
    axes = figure.subplots(1, len(CASES))
    for axis, name in zip(axes, CASES, strict=True):
        curves = measure(name, arguments.epochs, arguments.seeds)
        for method, (calls, errors) in curves.items():
            quarter = errors[len(errors) // 4]
            ends = f"error {quarter:.2e} at a quarter, {errors[-1]:.2e} at the end"
            print(f"{name:<10} {method:<10} {calls[-1]:10.3g} calls   {ends}", flush=True)
            axis.loglog(calls, errors, label=method, **line_style(["stochastic", *OTHERS].index(method)))
        axis.set_title(CASES[name][0](0).name)
        axis.set_xlabel("gradient calls (samples)")
        axis.set_ylabel("gap of f(x, y(x))" if name == "logistic" else "|x - x*|")
        axis.legend(frameon=False)
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        figure.savefig(arguments.out / "stochastic.png", dpi=110)
        print(f"\nwritten: {arguments.out / 'stochastic.png'}")


if __name__ == "__main__":
    main()
