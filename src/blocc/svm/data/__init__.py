"""Samples from files, from scikit-learn and from OpenML."""
