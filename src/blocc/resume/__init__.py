"""Runs that can be continued: recorded evaluations, the file they are kept in, and the problem they belong to."""
