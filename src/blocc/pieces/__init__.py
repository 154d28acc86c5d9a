"""Pieces of f(x, y(x)), on which the follower's active set stays the same, and the descent that finishes there."""
