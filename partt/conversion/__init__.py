"""Public datasets (HDF5, NPZ) -> ROOT files with every event."""
