"""Readers of network files, one format each; all of them hand over raw rows that ``rules.py`` completes and checks."""
