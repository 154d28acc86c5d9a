"""Studies: many runs over a grid of parameters and seeds, which survive the death of workers and programs."""
