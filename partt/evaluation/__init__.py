"""Scores -> metrics, figures, report."""
