"""What long jobs share: locks, stop signals, progress, dask."""
