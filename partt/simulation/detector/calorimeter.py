"""Calorimeter cells, their measured energy, and energy flow: cells compared with the tracks in them.

Axes: P particles, K tracks, C cells hit by particles or tracks, R rings of cells, N neutral candidates.
"""

from dataclasses import dataclass

import numpy as np

from partt.simulation.card import Calorimeter, ResolutionRegion, bounds
from partt.simulation.generator import Floats, Integers


@dataclass(frozen=True, eq=False)
class CellGrid:
    """Cells in eta and phi; rings at larger |eta| may have fewer cells."""

    eta_edges: Floats  # (R + 1,)
    phi_cells: Integers  # (R,) cells in each ring
    first_cell: Integers  # (R + 1,) number of the first cell of each ring

    @property
    def num_cells(self) -> int:
        """Return the number of cells."""
        return int(self.first_cell[-1])

    def cell(self, eta: Floats, phi: Floats) -> Integers:
        """Return the number of the cell at a position; -1 outside the calorimeter."""
        ring = np.searchsorted(self.eta_edges, eta, side="left") - 1
        inside = (ring >= 0) & (ring < len(self.phi_cells))
        ring = np.where(inside, ring, 0)
        cells_around = self.phi_cells[ring]
        number = np.floor((phi + np.pi) / (2 * np.pi) * cells_around).astype(np.int64)
        return np.where(inside, self.first_cell[ring] + np.clip(number, 0, cells_around - 1), -1)

    def limits(self, cell: Integers) -> tuple[Floats, Floats, Floats, Floats]:
        """Return lower and upper eta, lower and upper phi of cells."""
        ring = np.searchsorted(self.first_cell, cell, side="right") - 1
        width = 2 * np.pi / self.phi_cells[ring]
        phi = -np.pi + width * (cell - self.first_cell[ring])
        return self.eta_edges[ring], self.eta_edges[ring + 1], phi, phi + width


def build_grid(calorimeter: Calorimeter) -> CellGrid:
    """Lay out the cells of a card, the same at positive and negative eta."""
    edges, phi_cells = [0.0], []
    for band in calorimeter.cells:
        upper = band.upper_edges(edges[-1])
        edges += upper
        phi_cells += [band.phi_cells] * len(upper)
    both = np.array(phi_cells[::-1] + phi_cells)
    eta_edges = np.array([-edge for edge in edges[:0:-1]] + edges)
    return CellGrid(eta_edges, both, np.concatenate([[0], np.cumsum(both)]))


def energy_shares(calorimeter: Calorimeter, pid: Integers) -> Floats:
    """Return the fraction of each particle's energy that it deposits in this calorimeter."""
    shares = np.full(len(pid), calorimeter.other_energy_share)
    for code, share in calorimeter.energy_share.items():
        shares[np.abs(pid) == code] = share
    return shares


def resolution(regions: list[ResolutionRegion], eta: Floats, energy: Floats) -> Floats:
    """Return sigma(E), zero outside all regions.

    sigma(E) = (factor + curvature (|eta| - centre)^2) sqrt((constant E)^2 + stochastic^2 E + noise^2)
    """
    abs_eta = np.abs(eta)
    sigma = np.zeros_like(energy)
    for region in reversed(regions):
        lower, upper = bounds(region.abs_eta)
        inside = ((abs_eta > lower) | (lower == 0)) & (abs_eta <= upper)
        eta_in, energy_in = abs_eta[inside], energy[inside]
        factor = region.factor + region.curvature * (eta_in - region.centre) ** 2
        square = (region.constant * energy_in) ** 2 + region.stochastic**2 * energy_in + region.noise**2
        sigma[inside] = factor * np.sqrt(square)
    return sigma


def log_normal(mean: Floats, sigma: Floats, random: np.random.Generator) -> Floats:
    """Draw from the log-normal distribution of the given mean and standard deviation."""
    normal = random.standard_normal(len(mean))
    positive = mean > 0
    safe_mean = np.where(positive, mean, 1.0)
    width = np.sqrt(np.log1p((sigma / safe_mean) ** 2))
    return np.where(positive, safe_mean * np.exp(width * normal - width**2 / 2), 0.0)


@dataclass(frozen=True, eq=False)
class EnergyFlow:
    """Energy flow of a calorimeter: new factors on the tracks, and neutral candidates."""

    track_scale: Floats  # (K,) factor on the momentum of each track
    neutral_event: Integers  # (N,) excesses over the tracks
    neutral_energy: Floats
    neutral_eta: Floats
    neutral_phi: Floats


def energy_flow(
    calorimeter: Calorimeter,
    grid: CellGrid,
    particles: tuple[Integers, Floats, Floats, Floats],
    tracks: tuple[Integers, Floats, Floats, Floats],
    random: np.random.Generator,
) -> EnergyFlow:
    """Measure the energy of each cell and compare it with the tracks that point at it.

    `particles` and `tracks` are (event, eta, phi, energy): the deposits, and the tracks, with energy 0 if
    they deposit nothing here. With E the measured energy of a cell and E_t that of its tracks: if E - E_t
    passes both thresholds, it becomes a neutral candidate at a random position in the cell, and the tracks
    stay as they are; otherwise the momenta of the tracks are multiplied by E / E_t.
    """
    deposit_key = _cell_key(grid, *particles[:3])
    track_key = np.where(tracks[3] > 0, _cell_key(grid, *tracks[:3]), -1)
    taken, pointing = deposit_key >= 0, track_key >= 0
    cells, row = np.unique(
        np.concatenate([deposit_key[taken], track_key[pointing]]), return_inverse=True
    )  # (C,)
    deposit_row, track_row = row[: taken.sum()], row[taken.sum() :]

    eta_low, eta_high, phi_low, phi_high = grid.limits(cells % grid.num_cells)
    centre = (eta_low + eta_high) / 2
    deposited = _sum_by_cell(particles[3][taken], deposit_row, len(cells))
    measured = log_normal(deposited, resolution(calorimeter.resolution, centre, deposited), random)
    sigma = resolution(calorimeter.resolution, centre, measured)
    too_low = (measured < calorimeter.energy_min) | (measured < calorimeter.significance_min * sigma)
    measured[too_low] = 0.0
    eta, phi = random.uniform(eta_low, eta_high), random.uniform(phi_low, phi_high)

    tracked = _sum_by_cell(tracks[3][pointing], track_row, len(cells))
    excess = np.maximum(measured - tracked, 0.0)
    neutral = (excess > calorimeter.energy_min) & (excess > calorimeter.significance_min * sigma)
    cell_scale = np.where(neutral, 1.0, measured / np.where(tracked > 0, tracked, 1.0))
    track_scale = np.ones(len(track_key))
    track_scale[pointing] = cell_scale[track_row]
    return EnergyFlow(
        track_scale, (cells // grid.num_cells)[neutral], excess[neutral], eta[neutral], phi[neutral]
    )


def _sum_by_cell(energy: Floats, row: Integers, num_cells: int) -> Floats:
    return np.bincount(row, weights=energy, minlength=num_cells).astype(np.float64)


def _cell_key(grid: CellGrid, event: Integers, eta: Floats, phi: Floats) -> Integers:
    """Return numbers that are unique to a cell of an event; -1 outside the calorimeter."""
    cell = grid.cell(eta, phi)
    return np.where(cell >= 0, event * grid.num_cells + cell, -1)
