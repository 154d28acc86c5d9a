"""Projections obey their laws, agree with optax's, and bad arguments are named."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax.projections
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from blocc._lib.precision import double_precision
from blocc.errors import ProblemError
from blocc.sets import Box, Product, Reals
from blocc.simple_sets import AffineSubspace, Ball, Halfspace, Simplex

SETS = {
    "box": Box([-1.0, 0.0, -np.inf, 2.0], [1.0, np.inf, 3.0, 2.0]),
    "orthant": Box.nonnegative((2, 2)),
    "reals": Reals((2, 3)),
    "ball": Ball([1.0, -2.0, 0.5], 2.0),
    "ball of a number": Ball(3.0, 0.5),
    "simplex": Simplex(5, total=2.0),
    "simplex of one": Simplex(1),
    "halfspace": Halfspace([[1.0, -2.0], [0.0, 3.0]], -1.5),
    "halfspace beyond the origin": Halfspace([1.0, 2.0], 4.0),
    "affine": AffineSubspace([[1.0, 1.0, 0.0], [0.0, 1.0, -2.0], [1.0, 2.0, -2.0]], [1.0, 2.0, 3.0]),
    "affine without rows": AffineSubspace(np.zeros((0, 2)), np.zeros(0)),
    "product": Product({"w": Ball(np.zeros(2)), "b": [Simplex(3), Box(0.0, 1.0)], "c": Product((Reals(1),))}),
}

numbers = st.floats(-100.0, 100.0, allow_nan=False, allow_subnormal=False)


@cache
def functions(name):
    """Compiled projection and description (equalities, inequalities) of a set."""
    s = SETS[name]
    described = jax.jit(lambda point: (s.project_flat(point), s.inequality_flat(point), s.equality_flat(point)))

    def call(point):
        with double_precision():
            return tuple(np.asarray(part) for part in described(jnp.asarray(point)))

    return call


def project(name, point):
    return functions(name)(point)[0]


def violation(name, point):
    """How far the set's own description says that a point is outside."""
    _, inequality, equality = functions(name)(point)
    low, high = SETS[name].bounds_flat()
    parts = [low - point, point - high, inequality, np.abs(equality)]
    return float(np.max(np.concatenate(parts), initial=0.0))


@pytest.mark.parametrize("name", SETS)
@given(data=st.data())
@settings(deadline=None, derandomize=True, max_examples=30)
def test_projection_laws(name, data):
    convex_set = SETS[name]
    vectors = arrays(np.float64, convex_set.size, elements=numbers)
    v, w = data.draw(vectors), data.draw(vectors)
    member = convex_set.sample_flat(np.random.default_rng(data.draw(st.integers(0, 100))))
    pv, pw = project(name, v), project(name, w)
    rounding = 1e-12 * (1.0 + np.abs(v).max() + np.abs(w).max())
    assert pv.dtype == np.float64
    assert violation(name, pv) <= rounding
    assert convex_set.contains(convex_set.unravel(pv))
    np.testing.assert_allclose(project(name, pv), pv, rtol=0, atol=rounding)
    assert np.linalg.norm(pv - pw) <= np.linalg.norm(v - w) + rounding
    for z in (pw, member, convex_set.interior_flat()):
        # The variational inequality characterises the projection on a convex set.
        assert (v - pv) @ (z - pv) <= rounding * (1.0 + np.linalg.norm(v - pv) + np.linalg.norm(z - pv))


@pytest.mark.parametrize("name", SETS)
@given(data=st.data())
@settings(deadline=None, derandomize=True, max_examples=20)
def test_contains_agrees_with_bounds_and_constraints(name, data):
    convex_set = SETS[name]
    v = data.draw(arrays(np.float64, convex_set.size, elements=numbers))
    outside = violation(name, v)
    if outside > 1e-4:
        assert not convex_set.contains(convex_set.unravel(v))
        assert convex_set.distance(convex_set.unravel(v)) > 0
    elif outside == 0.0:
        assert convex_set.contains(convex_set.unravel(v))
        np.testing.assert_allclose(project(name, v), v, rtol=0, atol=1e-12 * (1.0 + np.abs(v).max()))


@pytest.mark.parametrize("name", SETS)
def test_interior_points_and_samples_are_members(name):
    convex_set = SETS[name]
    assert convex_set.contains(convex_set.interior_point(), tolerance=1e-13)
    inside = convex_set.interior_flat()
    low, high = convex_set.bounds_flat()
    free = high > low
    assert (inside > low)[free].all()
    assert (inside < high)[free].all()
    assert (functions(name)(inside)[1] < -0.1).all()
    samples = [convex_set.sample(seed) for seed in range(20)]
    assert all(convex_set.contains(sample, tolerance=1e-12) for sample in samples)
    assert jax.tree.structure(samples[0]) == jax.tree.structure(convex_set.template)
    flat = np.array([convex_set.ravel(sample) for sample in samples])
    varied = name != "simplex of one"
    assert (np.ptp(flat, axis=0)[free] > 1e-9).all() == varied
    np.testing.assert_array_equal(flat[3], convex_set.ravel(convex_set.sample(3)))


@pytest.mark.parametrize("name", SETS)
def test_ravel_and_unravel_are_inverse(name):
    convex_set = SETS[name]
    flat = np.arange(convex_set.size, dtype=float) + 0.5
    point = convex_set.unravel(flat)
    assert jax.tree.structure(point) == jax.tree.structure(convex_set.template)
    np.testing.assert_array_equal(convex_set.ravel(point), flat)
    integers = jax.tree.map(lambda leaf: np.asarray(leaf).astype(np.int32), point)
    assert convex_set.ravel(integers).dtype == np.float64
    with pytest.raises(ProblemError, match="start has the structure"):
        convex_set.ravel({"no": "such"}, "start")
    with pytest.raises(ProblemError, match="expected"):
        convex_set.ravel(jax.tree.map(lambda leaf: np.zeros((*np.shape(leaf), 2)), point))


def test_project_keeps_the_structure_of_a_product():
    point = {"w": np.array([3.0, 4.0]), "b": [np.array([5.0, 0.0, 0.0]), np.array(-1.0)], "c": (np.array([7.0]),)}
    found = SETS["product"].project(point)
    np.testing.assert_allclose(found["w"], [0.6, 0.8])
    np.testing.assert_allclose(found["b"][0], [1.0, 0.0, 0.0])
    assert found["b"][1] == 0.0
    assert found["c"][0] == 7.0
    assert SETS["product"].distance(point) == pytest.approx(np.sqrt(16.0 + 16.0 + 1.0))
    assert not SETS["product"].is_box
    assert Product([Box(0, 1), Reals(2)]).is_box


PEERS = {
    "box": (SETS["box"], lambda v: optax.projections.projection_box(v, SETS["box"].lower, SETS["box"].upper)),
    "orthant": (SETS["orthant"], optax.projections.projection_non_negative),
    "ball": (Ball(np.zeros(4), 1.5), lambda v: optax.projections.projection_l2_ball(v, 1.5)),
    "simplex": (Simplex(5, total=2.0), lambda v: optax.projections.projection_simplex(v, 2.0)),
    "halfspace": (
        SETS["halfspace beyond the origin"],
        lambda v: optax.projections.projection_halfspace(v, jnp.array([1.0, 2.0]), 4.0),
    ),
    "hyperplane": (
        AffineSubspace([[1.0, -1.0, 3.0]], [2.0]),
        lambda v: optax.projections.projection_hyperplane(v, jnp.array([1.0, -1.0, 3.0]), 2.0),
    ),
}


@pytest.mark.parametrize("name", PEERS)
def test_agrees_with_optax(name):
    convex_set, peer = PEERS[name]
    generator = np.random.default_rng(0)
    with double_precision():
        both = jax.jit(lambda v: (convex_set.project_flat(v.ravel()), jnp.ravel(peer(v))))
        for size in (0.1, 1.0, 10.0) * 4:
            ours, theirs = both(jnp.asarray(size * generator.standard_normal(convex_set.template.shape)))
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * (1.0 + size))


@pytest.mark.parametrize("name", ["ball", "simplex", "halfspace", "affine"])
def test_projection_of_a_distant_point_is_a_member(name):
    point = np.zeros(SETS[name].size)
    point[0] = 1e17
    found = project(name, point)
    assert violation(name, found) <= 32.0 * (name in ("halfspace", "affine")) + 1e-9


def test_derivatives_of_the_ball_projection_are_finite_everywhere():
    ball = SETS["ball"]
    with double_precision():
        jacobian = jax.jit(jax.jacfwd(ball.project_flat))
        for offset in (np.zeros(3), np.array([0.5, 0.0, 0.0]), np.array([4.0, 0.0, 0.0])):
            assert np.isfinite(jacobian(jnp.asarray(ball.center + offset))).all()
        np.testing.assert_allclose(jacobian(jnp.asarray(ball.center)), np.eye(3))


def test_sets_do_not_change_with_the_arrays_they_were_made_of():
    upper, center = np.ones(2), np.zeros(2)
    box, ball = Box(0.0, upper), Ball(center)
    upper[0], center[0] = -1.0, 9.0
    assert box.contains(np.array([0.5, 0.5]))
    assert ball.contains(np.array([0.5, 0.5]))


def test_contradicting_and_redundant_rows():
    assert SETS["affine"].equality_flat(np.zeros(3)).shape == (2,)
    with pytest.raises(ProblemError, match="contradict"):
        AffineSubspace([[1.0, 1.0], [2.0, 2.0]], [1.0, 3.0])


BAD = {
    "lower is text": (lambda: Box("a", 1.0), "lower"),
    "upper is None": (lambda: Box(0.0, None), "upper"),
    "upper is NaN": (lambda: Box(0.0, np.nan), "upper"),
    "lower is complex": (lambda: Box(1j, 2.0), "lower"),
    "lower is a complex array": (lambda: Box(np.array([1j]), 2.0), "lower"),
    "lower above upper": (lambda: Box([0.0, 2.0], 1.0), r"lower exceeds upper at index \(1,\)"),
    "lower is plus infinity": (lambda: Box(np.inf, np.inf), "lower must be below"),
    "upper is minus infinity": (lambda: Box(-np.inf, -np.inf), "upper above"),
    "shapes do not broadcast": (lambda: Box(np.zeros(2), np.ones(3)), "lower.*upper.*broadcast"),
    "shape does not fit": (lambda: Box(np.zeros(2), 1.0, shape=3), r"broadcast to \(3,\)"),
    "shape is negative": (lambda: Reals(-1), "shape"),
    "shape is a real number": (lambda: Reals(2.5), "shape"),
    "shape holds a real number": (lambda: Reals((2, 1.5)), "shape"),
    "shape is text": (lambda: Box(0.0, 1.0, shape="ab"), "shape"),
    "center is infinite": (lambda: Ball(np.inf), "center"),
    "center is text": (lambda: Ball("a"), "center"),
    "radius is zero": (lambda: Ball(0.0, 0.0), "radius"),
    "radius is NaN": (lambda: Ball(0.0, np.nan), "radius"),
    "radius is text": (lambda: Ball(0.0, "a"), "radius"),
    "radius is None": (lambda: Ball(0.0, None), "radius"),
    "radius is an array": (lambda: Ball(0.0, np.ones(2)), "radius"),
    "size is zero": (lambda: Simplex(0), "size"),
    "size is a real number": (lambda: Simplex(2.0), "size"),
    "total is negative": (lambda: Simplex(2, -1.0), "total"),
    "total is text": (lambda: Simplex(2, "a"), "total"),
    "normal is zero": (lambda: Halfspace(np.zeros(2), 1.0), "normal"),
    "normal is infinite": (lambda: Halfspace([np.inf, 1.0], 1.0), "normal"),
    "normal is text": (lambda: Halfspace("a", 1.0), "normal"),
    "offset is NaN": (lambda: Halfspace(1.0, np.nan), "offset"),
    "offset is text": (lambda: Halfspace(1.0, "a"), "offset"),
    "offset is None": (lambda: Halfspace(1.0, None), "offset"),
    "matrix is text": (lambda: AffineSubspace("a", 1.0), "matrix"),
    "matrix is infinite": (lambda: AffineSubspace([[np.inf]], 1.0), "matrix"),
    "matrix is three-dimensional": (lambda: AffineSubspace(np.zeros((1, 1, 1)), 1.0), "matrix"),
    "rhs has the wrong length": (lambda: AffineSubspace(np.eye(2), np.ones(3)), r"rhs must have shape \(2,\)"),
    "rhs is None": (lambda: AffineSubspace(np.eye(1), None), "rhs"),
    "lower is a number as text": (lambda: Box("1.0", 2.0), "lower"),
    "nothing in a product": (lambda: Product({}), "at least one set"),
    "a product of None": (lambda: Product(None), "at least one set"),
    "a point of another structure": (
        lambda: Product({"a": Reals(), "b": Reals(2)}).ravel({"a": 1.0}, "x0"),
        r"x0 has the structure \{'a': number\}, expected \{'a': number, 'b': array of shape \(2,\)\}",
    ),
    "a leaf is no set": (lambda: Product({"a": Reals(), "b": 3.0}), "Product.*float"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.filterwarnings("error")
def test_bad_arguments_are_named(case):
    build, message = BAD[case]
    with pytest.raises(ProblemError, match=message):
        build()


def test_a_scalar_rhs_fits_one_row():
    assert AffineSubspace([1.0, 1.0], 1.0).contains(np.array([0.25, 0.75]))
