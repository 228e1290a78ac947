"""Tracking efficiency and impact-parameter resolution."""

import numpy as np

from partt.simulation.card import EfficiencyRegion, ImpactParameterBin, bounds
from partt.simulation.generator import Floats


def efficiency(regions: list[EfficiencyRegion], abs_eta: Floats, pt: Floats) -> Floats:
    """Return the probability to find a track; zero outside all regions.

    In a region with `falls_over` it is efficiency x exp(-(pT - lower pT) / falls_over).
    """
    probability = np.zeros_like(pt)
    for region in reversed(regions):  # the first region that matches wins
        inside = _within(region.abs_eta, abs_eta) & _within(region.pt, pt)
        value = np.full_like(pt, region.efficiency)
        if region.falls_over is not None:
            value *= np.exp(-(pt - bounds(region.pt)[0]) / region.falls_over)
        probability[inside] = value[inside]
    return probability


def impact_parameter_widths(
    table: tuple[ImpactParameterBin, ...], abs_eta: Floats, pt: Floats
) -> tuple[Floats, Floats]:
    """Return the resolutions of d0 and dz (mm); zero outside the table."""
    sigma_d0, sigma_dz = np.zeros_like(pt), np.zeros_like(pt)
    for eta_range in sorted({(row.abs_eta_min, row.abs_eta_max) for row in table}):
        in_ring = np.flatnonzero((abs_eta > eta_range[0]) & (abs_eta <= eta_range[1]))
        rows = sorted(
            (row for row in table if (row.abs_eta_min, row.abs_eta_max) == eta_range),
            key=lambda row: row.pt_min,
        )
        bin_number = np.searchsorted([row.pt_min for row in rows], pt[in_ring], side="left") - 1
        upper = np.array([row.pt_max for row in rows])
        found = (bin_number >= 0) & (pt[in_ring] <= upper[bin_number])
        in_ring, bin_number = in_ring[found], bin_number[found]
        sigma_d0[in_ring] = np.array([row.sigma_d0 for row in rows])[bin_number]
        sigma_dz[in_ring] = np.array([row.sigma_dz for row in rows])[bin_number]
    return sigma_d0, sigma_dz


def _within(interval: list[float | None], values: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    lower, upper = bounds(interval)
    above = values >= lower if lower == 0 else values > lower
    return above & (values <= upper)
