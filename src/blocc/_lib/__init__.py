"""Helpers that know nothing about bilevel problems: precision, files, compiled functions, argument checks."""
