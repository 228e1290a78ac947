"""Objectives: loss and metrics of what is learned."""
