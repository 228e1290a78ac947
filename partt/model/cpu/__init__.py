"""Optimisations for CPUs; none changes what the networks compute."""
