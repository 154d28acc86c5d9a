"""Answers about power systems as pictures and pages; ``power_layout`` places the buses."""
