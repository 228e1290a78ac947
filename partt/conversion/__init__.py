"""Public datasets (HDF5, NPZ) -> ROOT, every event kept."""
