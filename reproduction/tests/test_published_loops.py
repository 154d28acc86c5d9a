"""The published loops against plain NumPy, transcribed here from their description: rule by rule, run by run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from blocc.transport.network.files import read_network
from blocc.transport.network.network import TransportNetwork
from reproduction import published_gam, published_lv_hba, published_scheme, published_svm, published_toy

Array = np.ndarray


# --- the toy ---------------------------------------------------------------------------------------------------------
def toy_in_numpy(start: Array, gamma: float, eta: float, steps: int) -> tuple[float, float, int, int]:
    """x, yF, steps of x and inner iterations of one run."""
    x, y_g, drawn = (float(value) for value in start)
    inner = 0

    def loop(y: float, multiplier: float, slope: Any) -> tuple[float, float]:
        nonlocal inner
        while True:
            inner += 1
            new_y = y - 0.1 * (slope(y) + multiplier)
            new_multiplier = max(multiplier + 0.1 * (y - x), 0.0)
            if abs((multiplier - new_multiplier) + (y - new_y)) / 0.1 <= 1e-4:
                return y, multiplier
            y, multiplier = new_y, new_multiplier

    def slope_g(y: float) -> float:
        return 2.0 * (y - 2.0 * x)

    def slope_f(y: float) -> float:
        return -np.exp(2.0 - y) / (2.0 + np.cos(6.0 * x)) + gamma * slope_g(y)

    for count in range(1, steps + 1):
        before = y_g
        y_g, mu_g = loop(y_g, 0.1, slope_g)
        y_f, mu_f = loop(y_g, drawn, slope_f)
        wave = 2.0 + np.cos(6.0 * x)
        f_x = np.exp(2.0 - y_f) * 6.0 * np.sin(6.0 * x) / wave**2
        f_x += 4.0 * (4.0 * x - 2.0) / ((4.0 * x - 2.0) ** 2 + 1.0)
        difference = -4.0 * (y_f - 2.0 * x) + 4.0 * (y_g - 2.0 * x)
        slope_x = f_x + gamma * (difference - mu_g * -1.0) + mu_f * -1.0
        moved = min(max(x - eta * slope_x, 0.0), 3.0)
        over = np.hypot(x - moved, before - y_g) / eta <= 1e-4
        if over or count == steps:
            return x, y_f, count, inner
        x = moved
    raise AssertionError


@pytest.mark.parametrize(("gamma", "eta"), [(0.01, 0.1), (5.0, 0.01)])
def test_the_loops_of_the_toy(gamma: float, eta: float) -> None:
    starts = published_toy.draw_starts([0, 1, 2])
    ended, _ = published_toy.run_published_toy(starts, gamma, eta, max_steps=12)
    for place, start in enumerate(starts):
        x, y, steps, inner = toy_in_numpy(start, gamma, eta, 12)
        assert (int(ended.steps[place]), int(ended.inner[place])) == (steps, inner)
        assert float(ended.x[place]) == pytest.approx(x, abs=1e-12)
        assert float(ended.y[place]) == pytest.approx(y, abs=1e-12)


def test_starts_of_the_toy_lie_in_x() -> None:
    starts = published_toy.draw_starts(list(range(60)))
    assert starts[:, 0].max() == 3.0  # drawn from [0, 3.5] and put back
    assert starts.min() < -2.0
    np.testing.assert_array_equal(starts[:3], published_toy.draw_starts([0, 1, 2]))


# --- support vector machines -----------------------------------------------------------------------------------------
def svm_in_numpy(samples: published_svm.Samples, c: Array, epochs: int) -> tuple[list[Array], list[Array]]:
    """c and (w, b) of the penalised problem before the step of c of every epoch."""
    train, validation = samples.train, samples.validation
    width = train.shape[1]
    sides = [(np.append(np.zeros(width - 1), 1.0), np.zeros(len(train))) for _ in range(2)]
    margins, own = [], []
    for _ in range(epochs):
        margins.append(c)
        own.append(sides[1][0])
        for index, (primal, dual) in enumerate(((1e-3, 1e-4), (1e-5, 1e-4))):
            y, mu = sides[index]
            for _ in range(20):
                for _ in range(20):
                    if index == 0:
                        slope = y - train.T @ mu
                    else:
                        slope = -validation.T @ np.exp(1.0 - validation @ y) + 12.0 * 0.5 * y - train.T @ mu
                    if np.linalg.norm(slope[:-1]) + abs(slope[-1]) < 1e-4:
                        break
                    y = y - primal * slope
                violation = 1.0 - c - train @ y
                if np.linalg.norm(violation) < 1e-4:
                    break
                mu = np.maximum(mu + dual * violation, 1e-5)
            sides[index] = (y, mu)
        step = c / np.linalg.norm(c) + 12.0 * sides[0][1] - sides[1][1]
        c = np.maximum(c - 0.01 * step, 1e-4)
    return margins, own


def clouds(seed: int = 0, train: int = 20, validation: int = 8, features: int = 3) -> published_svm.Samples:
    generator = np.random.default_rng(seed)
    count = train + validation + 6
    labels = np.where(np.arange(count) % 2, 1.0, -1.0)
    rows = labels[:, None] * np.hstack([generator.standard_normal((count, features)), np.ones((count, 1))])
    return published_svm.Samples(rows[:train], rows[train : train + validation], rows[train + validation :])


def test_the_loops_of_the_svm() -> None:
    parts = [clouds(seed) for seed in (0, 1)]
    starts = np.stack([published_svm.draw_margins(seed, 20) for seed in (0, 1)])
    stacked = published_svm.Samples(*(np.stack(rows) for rows in zip(*parts, strict=True)))
    figures, _ = published_svm.run_published_svm(stacked, starts, epochs=6)
    for place, (samples, start) in enumerate(zip(parts, starts, strict=True)):
        margins, own = svm_in_numpy(samples, start, 6)
        np.testing.assert_allclose(figures.margins[place], margins, rtol=1e-11)
        np.testing.assert_allclose(figures.own[place], own, rtol=1e-9, atol=1e-12)
        loss = np.mean(np.exp(1.0 - samples.validation @ own[-1]))
        assert float(figures.validation_loss[place, -1]) == pytest.approx(loss)
        assert float(figures.accuracy[place, -1]) == np.mean(samples.test @ own[-1] > 0.0)


def test_samples_are_expanded_shuffled_and_split_as_published(tmp_path: Any) -> None:
    file = tmp_path / "small.libsvm"
    file.write_text("+1 1:2 2:3\n-1 2:5\n")
    table = published_svm.read_as_published(file)
    np.testing.assert_array_equal(table, [[1.0, 2.0, 3.0], [-1.0, 5.0, 0.0]])  # the slip of the published reader
    np.testing.assert_array_equal(published_svm.expanded(table)[0], [1.0, 1.0, 2.0, 3.0, 4.0, 9.0, 6.0])
    eight = np.hstack([np.ones((700, 1)), np.random.default_rng(0).standard_normal((700, 8))])
    assert published_svm.expanded(eight).shape == (700, 46)
    first, second = published_svm.shuffled(eight, 2)
    again = first.copy()
    np.random.RandomState(1).shuffle(again)
    np.testing.assert_array_equal(second, again)  # every shuffle goes on from the one before
    parts = published_svm.split_rows(eight)
    assert [len(part) for part in parts] == [500, 150, 50]


def test_the_hypergradient_of_gam_is_a_derivative() -> None:
    samples = clouds(3, train=15)
    c = np.random.default_rng(4).uniform(-1.0, 0.0, 15)
    start = np.append(np.ones(3), 0.0)
    y = published_gam.follower(samples.train, c, start)

    def loss(weights: Array) -> float:
        found = published_gam.follower(samples.train, weights, y)
        ratio = 2.0 / (1.0 + np.exp(5.0 * samples.validation @ found / np.linalg.norm(found[:-1]))) - 1.0
        return float(np.where(ratio > 0.0, ratio, 0.01 * ratio).sum())

    slope = published_gam.hypergradient(samples, c, y)
    for place in range(0, 15, 4):
        step = np.zeros(15)
        step[place] = 1e-5
        assert slope[place] == pytest.approx((loss(c + step) - loss(c - step)) / 2e-5, rel=1e-4, abs=1e-7)
    path = published_gam.run_published_gam(samples, c, iterations=5)
    np.testing.assert_array_equal(path.classifiers[0], start)
    assert len(path.classifiers) == 5


# --- networks --------------------------------------------------------------------------------------------------------
class TablesInNumpy:
    """A network as tables over pairs of nodes, as the published programs have it; cells without a link stay empty."""

    def __init__(self, network: TransportNetwork) -> None:
        n = self.n = network.n_nodes
        shape = (n, n)
        self.link = np.zeros(shape, dtype=bool)
        self.link[network.tail, network.head] = True
        self.time, self.cost = np.zeros(shape), np.zeros(shape)
        self.time[network.tail, network.head] = network.time
        self.cost[network.tail, network.head] = network.cost
        self.w, self.u, self.m = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.market = np.zeros(shape, dtype=bool)
        for table, values in ((self.w, network.demand), (self.u, network.alternative_time), (self.m, network.revenue)):
            table[network.origin, network.destination] = values
        self.market[network.origin, network.destination] = True

    def solve(self, state: list[Array], a: Array, gamma: float, penalised: bool, rules: Any) -> int:
        """One inner loop on (f, F, lam, mu), in place; how many iterations it made."""
        n, weight = self.n, gamma if penalised else 1.0
        s1, s2 = 0.01 / weight, 0.4 / weight
        f, F, lam, mu = state
        count = 0
        while True:
            count += 1
            f_old, F_old = f.copy(), F.copy()
            r = F.sum(axis=1) - F.sum(axis=0)  # what leaves node i less what arrives there, by (i, o, d)
            for o in range(n):
                for d in range(n):
                    r[o, o, d] -= f[o, d]
                    r[d, o, d] += f[o, d]
            mu += s2 * r
            lam[:] = np.maximum(0.0, lam + s2 * ((self.w * F).sum(axis=(2, 3)) - a))
            lam[~self.link] = 0.0
            mu_o = np.array([[mu[o, o, d] for d in range(n)] for o in range(n)])
            mu_d = np.array([[mu[d, o, d] for d in range(n)] for o in range(n)])
            with np.errstate(divide="ignore", invalid="ignore"):  # markets without demand have shares of 0
                logit = np.log(f / (1.0 - f))
                slope = weight * self.w * (logit - self.u) - (self.m if penalised else 0.0) - mu_o + mu_d
            f[:] = np.where(self.market, np.clip(f - s1 * slope, 0.01, 0.99), 0.0)
            slope_flow = weight * self.w * self.time[:, :, None, None] + lam[:, :, None, None]
            slope_flow = slope_flow + mu[:, None] - mu[None]
            F[:] = np.clip(F - s1 * slope_flow, 0.0, 1.0)
            F[~self.link] = 0.0
            F[:, :, ~self.market] = 0.0
            mu[:, ~self.market] = 0.0
            moved = np.abs(f - f_old).mean() / 0.01
            change = np.abs(F - F_old)
            out = np.array([[F[o, :, o, d].sum() for d in range(n)] for o in range(n)])
            missing = np.abs(out - f).max()
            over = int(((self.w * F).sum(axis=(2, 3)) >= a + rules.slack)[self.link].sum())
            if penalised:
                again = moved > 0.03 or change.max(axis=(0, 1)).mean() / 0.01 > 0.1 or missing > 0.3
            else:
                again = moved > 0.02 or change.mean() / 0.01 > 0.01 or missing > 0.2
            if not (again or over > rules.over[penalised]):
                return count


def network_in_numpy(network: TransportNetwork, start: Array, gamma: float, eta: float, steps: int, rules: Any) -> Any:
    """Capacities and the follower's shares after so many steps of x, and all inner iterations."""
    tables = TablesInNumpy(network)
    n = tables.n
    a = np.zeros((n, n))
    a[network.tail, network.head] = start
    sides = [
        [np.where(tables.market, 0.01, 0.0), np.zeros((n,) * 4), np.zeros((n, n)), np.zeros((n,) * 3)] for _ in range(2)
    ]
    inner, calm = 0, False
    for k in range(1, steps + 1):
        for index in (0, 1):
            inner += tables.solve(sides[index], a, gamma, index == 1, rules)
        length = rules.long_step if calm and k > 1 else eta
        a = np.maximum(0.001, a - length * (tables.cost + gamma * sides[0][2] - sides[1][2]))
        calm = bool((sides[0][2][tables.link] < 1.0).all())
    share = sides[0][0][network.origin, network.destination]
    return a[network.tail, network.head], share, inner


@pytest.mark.parametrize(
    ("name", "steps", "gamma"), [("three", 40, 4.0), pytest.param("nine", 4, 3.0, marks=pytest.mark.slow)]
)
def test_the_loops_of_the_networks(name: str, steps: int, gamma: float) -> None:
    network, rules = read_network(name), published_scheme.RULES[name]
    start = network.random_starts(1, seed=1)[0]
    seen = published_scheme.run_published(network, start, gamma, 1.6e-4, steps, samples=2, rules=rules)
    capacity, share, inner = network_in_numpy(network, start, gamma, 1.6e-4, steps, rules)
    assert (seen[-1].step, seen[-1].inner) == (steps, inner)
    np.testing.assert_allclose(seen[-1].capacity, capacity, rtol=1e-10)
    np.testing.assert_allclose(seen[-1].sides[0].share, share, rtol=1e-9)


def test_a_run_is_seen_on_its_way_and_changes_nothing_it_was_given() -> None:
    network = read_network("three")
    start = network.random_starts(1, seed=3)[0]
    before = start.copy()
    seen = published_scheme.run_published(network, start, 3.0, 1.6e-4, 60, samples=3)
    assert [run.step for run in seen] == [20, 40, 60]
    np.testing.assert_array_equal(start, before)
    short = published_scheme.run_published(network, start, 3.0, 1.6e-4, 20, samples=1)
    np.testing.assert_array_equal(short[-1].capacity, seen[0].capacity)  # later steps did not touch what was seen


def test_a_run_whose_inner_loops_no_longer_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no slack left every link counts as over its capacity, so that no inner loop ends."""
    monkeypatch.setattr(published_scheme, "OF_ONE", 50)
    network = read_network("three")
    never = published_scheme.RULES["three"]._replace(slack=-np.inf)
    seen = published_scheme.run_published(network, network.random_starts(1, 0)[0], 3.0, 1.6e-4, 1_000, 10, never)
    assert len(seen) == 1
    assert (seen[0].step, seen[0].inner) == (0, 50)


# --- LV-HBA on three nodes -------------------------------------------------------------------------------------------
def project_in_cvxpy(a: Array, f: Array, F: Array) -> list[Array]:
    """The program's projection: one vector column by column, rows that read it row by row."""
    cp = pytest.importorskip("cvxpy")
    n = len(a)
    vector = np.concatenate([table.ravel(order="F") for table in (a, f, F)])
    v = cp.Variable(len(vector))
    cell = lambda i, j: v[i * n + j]  # noqa: E731
    share = lambda o, d: v[n * n + o * n + d]  # noqa: E731
    flow = lambda i, j, o, d: v[2 * n * n + ((i * n + j) * n + o) * n + d]  # noqa: E731
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    rows = [sum(flow(i, j, o, d) for o, d in pairs) <= cell(i, j) for i, j in pairs]
    for o, d in pairs:
        for i in (node for node in range(n) if node != o):
            out = sum(flow(i, j, o, d) - flow(j, i, o, d) for j in range(n) if j != i)
            rows.append(out + (share(o, d) if i == d else 0.0) == 0.0)
    bounds = [v >= 2e-4, v[: n * n] <= 1e3, v[n * n :] <= 0.98]
    cp.Problem(cp.Minimize(cp.sum_squares(v - vector)), rows + bounds).solve(
        solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12
    )
    parts = np.split(v.value, [n * n, 2 * n * n])
    return [part.reshape(table.shape, order="F") for part, table in zip(parts, (a, f, F), strict=True)]


def lv_hba_in_numpy(network: TransportNetwork, start: Array, iterations: int) -> tuple[Array, Array, Array]:
    """Capacities, shares and theta after so many iterations, in tables over pairs of nodes."""
    n, off = 3, ~np.eye(3, dtype=bool)
    tables = TablesInNumpy(network)
    a, d, u, m = np.zeros((n, n)), tables.time, tables.u, tables.m
    a[network.tail, network.head] = start
    f = theta = np.where(off, 0.5, 0.0)
    F = theta_F = np.zeros((n,) * 4)
    lam = z = -np.ones((n, n))
    mu = zmu = -np.ones((n, n, n))
    inside = off[:, :, None, None] & off[None, None]
    for k in range(iterations):
        c_k = 0.1 * (k + 1.0) ** 0.4
        mu_o = np.einsum("ood->od", mu)
        mu_d = np.einsum("dod->od", mu)
        with np.errstate(divide="ignore", invalid="ignore"):
            logit_theta, logit_f = (np.where(off, np.log(t / (1.0 - t)), 0.0) for t in (theta, f))
        new_theta = np.clip(theta - 0.01 * (logit_theta - u + mu_d - mu_o + (theta - f) / 5.0), 2e-4, 0.98)
        slope = d[:, :, None, None] + mu[:, None] - mu[None] + lam[:, :, None, None] + (theta_F - F) / 5.0
        theta, theta_F = np.where(off, new_theta, 0.0), np.where(inside, np.clip(theta_F - 0.01 * slope, 0.0, 1.0), 0.0)
        r = theta_F.sum(axis=1) - theta_F.sum(axis=0)
        for o in range(n):
            for e in range(n):
                r[o, o, e] -= theta[o, e]
                r[e, o, e] += theta[o, e]
        lam = np.clip(lam + 0.01 * (theta_F.sum(axis=(2, 3)) - a - (lam - z) / 5.0), 0.0, 1e3)
        mu = np.clip(mu + 0.01 * (r - (mu - zmu) / 5.0), -1e3, 1e3)
        a, f, F = project_in_cvxpy(
            np.where(off, a - 0.01 * (tables.cost / c_k + lam), 0.0),
            np.where(off, f - 0.01 * (logit_f - u - (f - theta) / 5.0 - m / c_k), 0.0),
            np.where(inside, F - 0.01 * (d[:, :, None, None] - (F - theta_F) / 5.0), 0.0),
        )
        a, f, F = np.where(off, a, 0.0), np.where(off, f, 0.0), np.where(inside, F, 0.0)
        z, zmu = z + 0.02 * (lam - z) / 5.0, zmu + 0.02 * (mu - zmu) / 5.0
    return a, f, theta


@pytest.mark.slow
def test_the_program_of_lv_hba() -> None:
    network = read_network("three")
    starts = network.random_starts(2, seed=1)
    seen, _, _ = published_lv_hba.run_published_lv_hba(network, starts, iterations=6, samples=2)
    assert [int(state.iteration[0]) for state in seen] == [3, 6]
    expected = lv_hba_in_numpy(network, starts[1], 6)
    found = (seen[-1].capacity[1], seen[-1].share[1], seen[-1].theta[1])
    for ours, table in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, table[network.tail, network.head], atol=1e-7)
    assert not np.allclose(seen[-1].capacity[0], seen[-1].capacity[1], atol=1e-3)  # starts are not forgotten yet


def test_the_program_of_lv_hba_reads_every_entry_once() -> None:
    wires = published_lv_hba.wires_of(read_network("three"))
    tables = np.arange(6.0), 10.0 + np.arange(6.0), np.arange(36.0).reshape(6, 6)
    again = published_lv_hba.mixed_up(wires, *published_lv_hba.mixed_up(wires, *tables))
    for table, back in zip(tables, again, strict=True):
        np.testing.assert_array_equal(table, back)
    with pytest.raises(ValueError, match="every pair is a link"):
        published_lv_hba.wires_of(read_network("nine"))
