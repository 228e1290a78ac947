"""Plumbing that stages share: folder locks, stop signals, progress, dask clusters."""
