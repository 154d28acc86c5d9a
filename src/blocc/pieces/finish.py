"""Piecewise sequential quadratic programming on f(x, y(x)) (Luo, Pang and Ralph 1996, chapter 6; Jiang and Ralph 1999).

On the piece of the follower's response at hand a quadratic model with its exact Hessian is minimised under the
linearised rows of the piece, of G and of X, within a trust region; f(x, y(x)) itself decides about the step, by the
true response where it leaves the piece. Multipliers of rows that end the piece tell whether f falls on the
neighbouring one; a point that multipliers of the right signs explain on both sides is B-stationary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.rounding import TINY
from blocc.pieces.derivatives import Model, model_of, other_side
from blocc.pieces.piece import Followers, Guess, Key, Piece
from blocc.pieces.selection import identified
from blocc.pieces.stationarity import falling_piece
from blocc.pieces.step import Multipliers, Step, bent_direction, step_of

_EPS = float(np.finfo(float).eps)


class Asked(NamedTuple):
    """f(x, y(x)) at one x, exactly; ``piece`` is None where no piece is regular there."""

    x: Float[NDArray, "n_x"]
    y: Float[NDArray, "n_y"]
    upper: float
    lower: float
    violation: float  #: of G, relative to its rows
    piece: Piece | None


class Finished(NamedTuple):
    """Where the finish ended: the best point that it has asked for."""

    best: Asked
    stationary: bool  #: B-stationary, and no way down was found where curvature is negative
    runs_away: bool  #: f kept falling, far from the start


#: y at x by an oracle; None if there is none.
ReducedObjective = Callable[[np.ndarray], np.ndarray | None]


class Finish:
    """One descent on pieces. ``spend`` is called before every value of f(x, y(x)), ``note`` after every step."""

    def __init__(
        self,
        followers: Followers,
        answer: ReducedObjective,
        spend: Callable[[], None],
        note: Callable[[Asked, float], None],
    ) -> None:
        self.followers, self.settings = followers, followers.settings
        self.answer, self.spend, self.note = answer, spend, note
        self.row_units: np.ndarray | None = None  #: of G
        self.wide = self.settings.radius  #: of the trust region of steps that leave their piece
        self.price = 1.0  #: of a violation of G in the merit function
        self.best: Asked | None = None
        self._visited: set[tuple[bytes, Key]] = set()  #: pieces from which there was no way down, by x
        self._first = np.zeros(0)

    # --- values -------------------------------------------------------------------------------------------------
    def start(self, x: np.ndarray, y: np.ndarray, guess: Guess | None = None) -> Asked | None:
        """The point at which the descent begins; None if it is on no regular piece. ``guess``: what held y before."""
        self.spend()
        followers = self.followers
        piece = None if guess is None else followers.respond(x, y, guess.held, guess.mu, guess.nu)
        piece = identified(followers, x, y) if piece is None and guess is None else piece
        if piece is None:
            return None
        model = model_of(piece.of, piece)
        if model.n_leader:
            self.row_units = model.units[model.n_own : model.n_own + model.n_leader]
        self._first = x
        return self._asked(x, piece.response, piece)

    def reduced_objective(self, x: np.ndarray, near: Piece, model: Model | None = None) -> Asked | None:
        """f(x, y(x)): from the piece nearby, or by the oracle; None if the follower has no answer."""
        self.spend()
        y = near.y if model is None else near.y + model.response @ (x - near.x)
        piece = near.of.respond(x, y, near.held, near.mu, near.nu)
        if piece is None:
            found = self.answer(x)
            if found is None:
                return None
            y, piece = found, identified(self.followers, x, found)
        return self._asked(x, y if piece is None else piece.response, piece)

    def _asked(self, x: np.ndarray, y: np.ndarray, piece: Piece | None) -> Asked | None:
        own = piece is not None and piece.of is self.followers
        found = piece.found if piece is not None and own else self.followers.derivatives(x, y)
        upper, rows = float(found.upper), found.upper_inequality
        if not (np.isfinite(upper) and np.isfinite(rows).all()):
            return None
        units = np.ones(len(rows)) if self.row_units is None else self.row_units
        asked = Asked(x, y, upper, float(found.lower), float(np.max(rows / units, initial=0.0)), piece)
        if self.best is None or self.rank(asked) < self.rank(self.best):
            self.best = asked
        return asked

    def rank(self, asked: Asked) -> tuple[float, float]:
        """Violations beyond rounding first."""
        return (asked.violation if asked.violation > self.settings.admissible else 0.0, asked.upper)

    def merit(self, asked: Asked) -> float:
        """f and a price for violations of G (an exact penalty)."""
        return asked.upper + self.price * asked.violation

    # --- the descent --------------------------------------------------------------------------------------------
    def run(self, first: Asked, most: int | None = None) -> Finished:
        """Descend from a point on a regular piece, by so many steps at most."""
        here, radius = first, self.settings.radius
        assert first.piece is not None
        piece = first.piece
        multipliers: Multipliers | None = None
        owner = piece.of
        for _ in range(min(self.settings.iterations, most or self.settings.iterations)):
            model = model_of(piece.of, piece)
            multipliers = multipliers if piece.of is owner else None
            if piece.of.is_large and (beyond := self._across_many(here, model, multipliers)) is not None:
                here, piece = beyond
                continue
            step = step_of(piece.of, model, multipliers, radius, self.price, here.violation)
            if step is None or self._runs_away(here):
                break
            multipliers, self.price, owner = step.multipliers, step.price, piece.of
            if step.promised <= self._noise(here, piece):
                here, piece, model, step = self._sharpened(here, model, step, radius)
                onward = self._onward(here, model, step, radius)
                if onward is None:
                    return self._finished(here, True)
                here, piece, multipliers = *onward, None
                radius = max(radius, step.length, self.settings.difference)
                continue
            trial = self._trial(here, model, step)
            if trial is None:
                radius = self.settings.poor * step.length
                if radius < self.settings.smallest_radius:
                    break
                continue
            gained = (self.merit(here) - self.merit(trial)) / step.promised
            if gained > self.settings.good:
                radius = max(radius, 2.0 * step.length)
            elif gained < self.settings.poor:
                radius = 0.5 * step.length
            here = trial
            self.note(here, step.promised / step.length)
            if here.piece is None:
                break
            piece = self._turned(here, here.piece, step)
        return self._finished(here, False)

    def _across_many(self, here: Asked, model: Model, multipliers: Multipliers | None) -> tuple[Asked, Piece] | None:
        """A step that leaves the piece, where more of its rows are near than can hold x; None if it gains too little.

        Kinks are then so dense that f(x, y(x)) looks smooth, and from row to row the way would be long.
        """
        step = step_of(model.piece.of, model, multipliers, self.wide, self.price, here.violation, across=True)
        if step is None or self._runs_away(here) or step.promised <= self._noise(here, model.piece):
            return None
        moved = model.piece.of.sizes.x * step.step
        ends = model.value[: model.n_own] + model.jacobian[: model.n_own] @ moved > 0.0
        if int(ends.sum()) <= len(here.x):
            return None
        trial = self._trial(here, model, step)
        gained = 0.0 if trial is None else (self.merit(here) - self.merit(trial)) / step.promised
        if gained > self.settings.good:
            self.wide = max(self.wide, 2.0 * step.length)
        elif gained < self.settings.poor:
            self.wide = self.settings.poor * step.length
        if trial is None or trial.piece is None:
            return None
        self.note(trial, step.promised / step.length)
        return trial, trial.piece

    def _finished(self, here: Asked, stationary: bool) -> Finished:
        """The end, or the best point seen if that is better by more than rounding."""
        best = self.best
        assert best is not None
        worse = here.violation > self.settings.admissible >= best.violation
        worse |= self.merit(best) < self.merit(here) - 1e3 * _EPS * abs(here.upper)
        return Finished(best if worse else here, stationary and not worse, not stationary and self._runs_away(here))

    def _runs_away(self, here: Asked) -> bool:
        """Whether f falls for ever, as far as sizes of x tell."""
        away = np.max(
            np.abs(here.x - self._first) / np.maximum(self.followers.sizes.x, np.abs(self._first)), initial=0.0
        )
        return bool(away > self.settings.farthest)

    def _noise(self, here: Asked, piece: Piece) -> float:
        """What rounding leaves of f: differences below it tell nothing."""
        size = np.abs(np.concatenate([piece.x, piece.y]))
        return 4.0 * _EPS * (abs(here.upper) + float(np.abs(piece.found.upper_gradient) @ size))

    def _moved(self, model: Model, step: np.ndarray) -> np.ndarray:
        """The member of X at the end of a step in sizes of x."""
        return np.asarray(self.followers.flat.project_x(model.piece.x + self.followers.sizes.x * step))

    def _trial(self, here: Asked, model: Model, step: Step) -> Asked | None:
        """The end of a step if f(x, y(x)) gains enough there; if rows have bent away, of the corrected step."""
        for corrected in (False, True):
            x = self._moved(model, step.step)
            if np.array_equal(x, here.x):
                return None
            trial = self.reduced_objective(x, model.piece, model)
            if trial is None:
                return None
            if self.merit(here) - self.merit(trial) >= self.settings.accept * step.promised:
                return trial
            curved = trial.piece is not None and trial.piece.like(model.piece)
            if corrected or not curved or (trial.violation <= here.violation and not len(step.kinks.among)):
                return None
            assert trial.piece is not None
            again = step.corrected(model_of(trial.piece.of, trial.piece))
            if again is None:
                return None
            step = again
        return None

    # --- where the model falls no more --------------------------------------------------------------------------
    def _sharpened(self, here: Asked, model: Model, step: Step, radius: float) -> tuple[Asked, Piece, Model, Step]:
        """One more step where f tells no difference any more, but its derivative does; with the model there."""
        same = here, model.piece, model, step
        if not 0.0 < step.length <= self.settings.difference:
            return same
        x = self._moved(model, step.step)
        moved = None if np.array_equal(x, here.x) else self.reduced_objective(x, model.piece, model)
        if moved is None or moved.piece is None or not moved.piece.like(model.piece):
            return same
        if moved.upper > here.upper + self._noise(here, model.piece) or moved.violation > self.settings.admissible:
            return same
        after = model_of(moved.piece.of, moved.piece)
        again = step_of(moved.piece.of, after, step.multipliers, radius, self.price, moved.violation)
        return same if again is None else (moved, moved.piece, after, again)

    def _onward(self, here: Asked, model: Model, step: Step, radius: float) -> tuple[Asked, Piece] | None:
        """A way down on a neighbouring piece, or where f bends down; None at a B-stationary minimum."""
        self._visited.add((here.x.tobytes(), model.piece.key))
        for piece in self._neighbours(here, model, step):
            other = model_of(piece.of, piece)
            found = step_of(piece.of, other, None, max(radius, self.settings.difference), self.price, here.violation)
            if found is not None and found.promised > self._noise(here, piece):
                return here, piece
        direction = bent_direction(model.piece.of, model, step)
        if direction is None:
            return None
        for length in self.settings.probes:
            for sign in (1.0, -1.0):
                seen = self.reduced_objective(self._moved(model, sign * length * direction[0]), model.piece)
                promised = -0.5 * direction[1] * length**2
                if seen is None or seen.piece is None or seen.violation > max(here.violation, self.settings.admissible):
                    continue
                if here.upper - seen.upper > max(self.settings.poor * promised, self._noise(here, model.piece)):
                    return seen, seen.piece
        return None

    def _neighbours(self, here: Asked, model: Model, step: Step) -> Iterator[Piece]:
        """Neighbouring pieces on which f may fall; none if multipliers of the right signs explain x on both sides."""
        ended, other = self._other_side(model, step)
        turned = np.flatnonzero(ended & (other < -self.settings.sign))
        # A row that depends on those held has no multiplier on the other side: it takes the place of one of them.
        priced = step.on(model)[: model.n_own] > 0.0
        choices = [np.array([row]) for row in np.flatnonzero(ended & priced & (np.abs(other) <= self.settings.sign))]
        if len(turned):
            choices += [turned, *(turned[[k]] for k in range(len(turned)))]
            own = np.array([model.own(int(row)) for row in np.flatnonzero(ended)], dtype=int)
            held = falling_piece(model.piece.of, model, own)
            if held is not None:
                across = np.setxor1d(held, model.piece.held)
                choices.insert(0, np.array([model.row_of(row) for row in across], int))
        for choice in choices:
            piece = self._across(here, model, choice)
            if piece is not None and (here.x.tobytes(), piece.key) not in self._visited:
                self._visited.add((here.x.tobytes(), piece.key))
                yield piece
        for kink in model.kinks.concave:  # f bends down there: each side is a piece of its own
            yield model.piece._replace(turned=model.piece.turned ^ {int(kink)})

    def _other_side(self, model: Model, step: Step) -> tuple[np.ndarray, np.ndarray]:
        """Rows that end the piece at x, and multipliers on their other side: f falls there where one is negative."""
        other = other_side(model.piece.of, model, step.on(model), step.multipliers.on_kinks(model))
        scale = float(np.max(np.abs(model.gradient) * self.followers.sizes.x, initial=0.0))
        scale = max(scale, float(np.max(np.abs(other), initial=0.0)), TINY)
        return np.abs(model.value[: model.n_own]) <= self.settings.biactive, other / scale

    def _across(self, here: Asked, model: Model, rows: np.ndarray) -> Piece | None:
        """The piece at the same x on the other side of some rows; None if it is not regular or not the truth there."""
        own = np.array([model.own(row) for row in rows], int)
        base = model.piece
        piece = base.of.newton(here.x, base.y, np.setxor1d(base.held, own).astype(int), base.mu, base.nu)
        if piece is None and len(own) == 1 and (held := base.of.exchanged(base, int(own[0]))) is not None:
            piece = base.of.newton(here.x, base.y, held, base.mu, base.nu)
        if piece is None or np.max(piece.of.wrong(piece), initial=0.0) > self.settings.biactive:
            return None
        return piece

    def _turned(self, here: Asked, piece: Piece, step: Step) -> Piece:
        """The piece with which to go on: across the rows at which the step ended, if multipliers say so."""
        model = model_of(piece.of, piece)
        ended, beyond = self._other_side(model, step)
        against = np.flatnonzero(ended & (beyond < -self.settings.sign))
        if not len(against):
            return piece
        other = self._across(here, model, against)
        return piece if other is None else other
