"""Studies: many runs over a grid of parameters and seeds, and the tables of the paper as such studies."""
