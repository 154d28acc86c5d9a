"""File formats of networks, one each; what a reader hands over is in ``raw.py``."""
