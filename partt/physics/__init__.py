"""Pure functions on arrays: four-vectors and pair features."""
