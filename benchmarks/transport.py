"""The paper's three networks: designs and times beside the paper's, and the lower level beside Clarabel's.

    python benchmarks/transport.py [--starts 5] [--skip-methods]

Times exclude compilation, which is printed once. Everything is measured in this run.
"""

from __future__ import annotations

import argparse
import time
import warnings

import cvxpy as cp
import jax
import numpy as np

from blocc._lib.compiled import compile_ahead
from blocc._lib.precision import double_precision
from blocc._lib.threads import single_blas_thread
from blocc.transport import DesignModel, design_network, read_network
from blocc.transport.travellers.assignment import cold, solve_lower_level
from transport_capacity_methods import METHODS, design_by

PAPER = {"three": (1.71, 20.0), "nine": (11.04, 868.0), "seville": (138.78, 67_000.0)}


def designs(starts: int) -> None:
    print(
        f"{'network':<8} {'paper':>18} {'each start: utility (s)':<60} {'best':>9} {'compile':>8} {'certificate':>11}"
    )
    for name, (utility, seconds) in PAPER.items():
        network = read_network(name)
        model = DesignModel(network)
        design = design_network(network, starts=starts, model=model)
        certificate = design.certificate
        size = 1.0 + max(float(design.follower.flow.max(initial=0.0)), 1.0)
        residual = max(certificate.stationarity, certificate.feasibility, certificate.complementarity) / size
        each = "  ".join(f"{start.utility:.4f} ({start.seconds:.2f})" for start in design.starts)
        paper = f"{utility:g} in {seconds:,.0f} s"
        print(
            f"{name:<8} {paper:>18} {each:<60} {design.utility:>9.4f} {design.seconds['compile']:>6.1f} s "
            f"{residual:>11.0e}  {design.status.value}",
            flush=True,
        )
        best = max(design.starts, key=lambda start: start.utility)
        print(
            f"{'':<8} {best.utility / utility:>17.2f}x the paper's utility, {seconds / best.seconds:,.0f} times faster"
        )


def methods() -> None:
    print("\nWays to move, one start on nine nodes (utility, seconds, evaluations):")
    network = read_network("nine")
    model = DesignModel(network)
    design_network(network, starts=1, model=model)  # compile
    (start,) = design_network(network, starts=1, model=model).starts
    print(f"  {'prices':<8} {start.utility:>9.4f} {start.seconds:>8.2f} s {start.evaluations:>6}", flush=True)
    for method in METHODS:
        design_by(method, model, network.random_starts(1, 9)[0], gamma=2.0)  # compile
        began = time.perf_counter()
        with double_precision(), single_blas_thread():
            found = design_by(method, model, network.random_starts(1)[0]).state
        seconds = time.perf_counter() - began
        print(f"  {method:<8} {found.score:>9.4f} {seconds:>8.2f} s {found.evaluations:>6}", flush=True)


def yardstick() -> None:
    print("\nOne lower level at random capacities: the structured interior point and Clarabel (through CVXPY):")
    with double_precision(), single_blas_thread():
        for name in PAPER:
            network = read_network(name)
            capacity = network.random_starts(1, 0)[0]
            model = DesignModel(network)
            graph = model.graph
            start = cold(graph)
            solve, _ = compile_ahead(
                lambda x, warm, graph=graph: solve_lower_level(graph, x, graph.alternative, warm, 1e-10),
                capacity,
                start,
            )
            ours = min(_timed(solve, capacity, start) for _ in range(20))
            found = solve(capacity, start)
            problem, share = clarabel_problem(network, capacity)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                options = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-10)
                problem.solve(solver=cp.CLARABEL, **options)
                theirs = []
                for _ in range(3):
                    problem.solve(solver=cp.CLARABEL, **options)
                    theirs.append(float(problem.solver_stats.solve_time))
            _, row = network.by_origin
            shares = np.asarray(found.point.share)[row, network.destination]
            print(
                f"  {name:<8} ours {1e3 * ours:>8.2f} ms   Clarabel's solver alone {1e3 * min(theirs):>8.2f} ms   "
                f"{min(theirs) / ours:>5.1f} times faster   largest difference of a share "
                f"{np.abs(shares - share.value).max():.0e}",
                flush=True,
            )


def clarabel_problem(network, capacity):
    """The same lower level, aggregated by origin, in exponential cones."""
    origins, row = network.by_origin
    flow = cp.Variable((len(origins), network.n_links), nonneg=True)
    share = cp.Variable(network.n_markets)
    arriving = np.zeros((len(origins) * network.n_nodes, network.n_markets))
    every = np.arange(network.n_markets)
    arriving[row * network.n_nodes + network.destination, every] = network.demand
    arriving[row * network.n_nodes + network.origin, every] = -network.demand
    incidence = np.zeros((network.n_links, network.n_nodes))
    incidence[np.arange(network.n_links), network.head] += 1
    incidence[np.arange(network.n_links), network.tail] -= 1
    balance = flow @ incidence == cp.reshape(arriving @ share, (len(origins), network.n_nodes), order="C")
    entropy = network.demand @ (cp.entr(share) + cp.entr(1 - share))
    cost = cp.sum(flow @ network.time) + (network.demand * network.alternative_time) @ (1 - share)
    return cp.Problem(cp.Minimize(cost - entropy), [balance, cp.sum(flow, axis=0) <= capacity]), share


def _timed(function, *arguments) -> float:
    began = time.perf_counter()
    jax.block_until_ready(function(*arguments))
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--skip-methods", action="store_true")
    arguments = parser.parse_args()
    designs(arguments.starts)
    yardstick()
    if not arguments.skip_methods:
        methods()


if __name__ == "__main__":
    main()
