"""Jet tagging with the Particle Transformer, from ROOT files to a results table."""

__version__ = "0.1.0"
