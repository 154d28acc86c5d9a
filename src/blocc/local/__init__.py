"""A problem around one point: derivatives, natural units, small convex programs. Descents and judges both use it."""
