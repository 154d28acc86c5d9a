"""Global answers: branch and bound over the follower's complementarity, or over boxes of the leader's variables."""
