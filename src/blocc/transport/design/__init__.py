"""The upper level: which links to build, and how large."""
