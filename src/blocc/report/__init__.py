"""What becomes of a result: files that can be read back, a live line while it is computed, and pictures."""
