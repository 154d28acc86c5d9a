"""Derivatives of answers: of the follower's in x and data, of the leader's in data."""
