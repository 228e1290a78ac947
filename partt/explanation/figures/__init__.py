"""Figures of explanations, one a module."""
