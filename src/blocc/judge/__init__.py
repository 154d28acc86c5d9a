"""Is an answer true? Judged from the problem's functions and (x, y) alone, in the user's own units."""
