"""Stable particles -> energy-flow candidates: propagation, tracking, calorimeters."""
