"""Where F_gamma has no gradient or the follower no answer: boundaries, kinks, saddles, infeasible starts."""
