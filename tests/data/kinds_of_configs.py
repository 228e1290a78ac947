"""Data configs of every kind that people write for weaver, and jets in files for them."""

from pathlib import Path

import numpy as np

from partt.data.files.tables import write_table
from partt.data.jagged import Column, Jagged

MASKS = """\
  cand_mask: ak.ones_like(cand_pt)
  vertex_mask: ak.ones_like(vertex_pt)
"""
VECTORS = """\
  cand_px: cand_pt * np.cos(cand_phi)
  cand_py: cand_pt * np.sin(cand_phi)
  cand_pz: cand_pt * np.sinh(cand_eta)
  vertex_p4: _p4_from_ptetaphim(vertex_pt, vertex_eta, vertex_phi, vertex_mass)
  vertex_px: vertex_p4.px
  vertex_py: vertex_p4.py
  vertex_pz: vertex_p4.pz
  vertex_e: vertex_p4.energy
"""
LABELS = """\
labels:
  type: simple
  value: [is_b, is_c, is_light]
"""

PF_AND_SV = f"""\
new_variables:
{MASKS}{VECTORS}\
inputs:
  pf_features:
    length: 20
    vars:
      - [cand_pt, 5, 0.2]
      - cand_eta
      - [cand_d0, 0, 3, -2, 2]
  pf_vectors:
    length: 20
    vars: [[cand_px, null], [cand_py, null], [cand_pz, null], [cand_e, null]]
  pf_mask:
    length: 20
    vars: [cand_mask]
  sv_features:
    length: 3
    vars:
      - [vertex_mass, 1, 0.5]
      - [vertex_pt, 10, 0.1]
  sv_vectors:
    length: 3
    vars: [vertex_px, vertex_py, vertex_pz, vertex_e]
  sv_mask:
    length: 3
    vars: [vertex_mask]
{LABELS}"""

CPF_NPF_SV = f"""\
new_variables:
{MASKS}{VECTORS}\
  is_charged: cand_charge != 0
  cpf_pt: cand_pt[is_charged]
  cpf_d0: cand_d0[is_charged]
  cpf_phi: cand_phi[is_charged]
  cpf_mask: ak.ones_like(cpf_pt)
  npf_pt: cand_pt[~is_charged]
  npf_eta: cand_eta[~is_charged]
  npf_mask: ak.ones_like(npf_pt)
inputs:
  sv_features:
    length: 4
    vars: [vertex_pt, vertex_mass]
  sv_mask:
    length: 4
    vars: [vertex_mask]
  cpf_points:
    length: 10
    vars: [cpf_phi]
  cpf_features:
    length: 10
    vars: [[cpf_pt, 1, 0.3], cpf_d0]
  cpf_mask:
    length: 10
    vars: [cpf_mask]
  npf_features:
    length: 6
    vars: [npf_pt, [npf_eta, 0, 2]]
  npf_mask:
    length: 6
    vars: [npf_mask]
{LABELS}"""

THREE_COORDINATES = f"""\
new_variables:
{MASKS}\
inputs:
  pf_points:
    length: 16
    vars: [cand_eta, cand_phi, cand_d0]
  pf_features:
    length: 16
    vars: [[cand_pt, 3, 0.1]]
  pf_weights:
    length: 16
    vars: [cand_e, cand_charge]
  pf_mask:
    length: 16
    vars: [cand_mask]
{LABELS}"""

JETS_ONLY = f"""\
new_variables:
  jet_logpt: np.log(jet_pt)
  leading_mass: ak.fill_none(ak.firsts(vertex_mass), -1)
inputs:
  highlevel:
    length: null
    vars: [jet_logpt, [jet_eta, 0, 2], leading_mass]
  score:
    length: null
    vars: [jet_ntracks]
  global_features:
    length: 1
    vars: [[jet_pt, 100, 0.01], jet_mass]
  lead_features:
    length: 1
    vars: [[vertex_pt, 10, 0.1, -5, 5, -7], [vertex_d3d, null, 1, -5, 5, -9]]
{LABELS}"""

JETS_AND_PARTICLES = f"""\
new_variables:
{MASKS}\
inputs:
  pf_features:
    length: 12
    vars: [cand_pt, cand_eta]
  pf_mask:
    length: 12
    vars: [cand_mask]
  jet_features:
    length: 1
    vars: [[jet_pt, 100, 0.01], jet_mass]
  ft_vars:
    length: 8
    vars: [embedding]
{LABELS}"""

MASK_FROM_A_BRANCH = f"""\
inputs:
  pf_features:
    length: 12
    vars: [cand_pt, [cand_eta, 0, 2]]
  pf_mask:
    length: 12
    vars: [cand_is_good]
{LABELS}"""

MASK_FROM_A_FORMULA = f"""\
new_variables:
  tower_mask: tower_pt != 0
inputs:
  pf_features:
    length: 10
    vars: [tower_pt, tower_eta]
  pf_points:
    length: 10
    vars: [tower_eta, tower_phi]
  pf_mask:
    length: 10
    vars: [tower_mask]
{LABELS}"""

JET_INPUTS = """\
inputs:
  jet_features:
    length: 1
    vars: [[jet_pt, 100, 0.01], jet_mass]
"""

REGRESSION = f"""\
{JET_INPUTS}\
labels:
  type: custom
  value:
    mass_factor: np.where(is_b, gen_mass, jet_mass) / jet_mass
"""

SEVERAL_TARGETS = f"""\
{JET_INPUTS}\
labels:
  type: custom
  value:
    mass_factor: gen_mass / jet_mass
    mass_factor_mask: has_gen
    pt_factor: gen_pt / jet_pt
"""

CLASS_NUMBER = f"""\
{JET_INPUTS}\
labels:
  type: custom
  value:
    truth_label: class_number
"""

FORMULAS_AS_LABELS = f"""\
{JET_INPUTS}\
labels:
  type: simple
  value: [is_b, (is_c) | (is_light)]
"""

HYBRID = f"""\
{JET_INPUTS}\
labels:
  type: hybrid
  value: null
  value_cls_index: is_c + 2 * is_light
  value_cls_names: [label_b, label_c, label_light]
  value_custom:
    mass_factor: gen_mass / jet_mass
    pt_factor: gen_pt / jet_pt
  split_per_cls: true
"""

INPUTS = {
    "pf and sv": PF_AND_SV,
    "cpf, npf, sv": CPF_NPF_SV,
    "three coordinates": THREE_COORDINATES,
    "jets only": JETS_ONLY,
    "jets and particles": JETS_AND_PARTICLES,
    "mask from a branch": MASK_FROM_A_BRANCH,
    "mask from a formula": MASK_FROM_A_FORMULA,
}
LABELS_OF_WEAVER = {
    "regression": REGRESSION,
    "several targets": SEVERAL_TARGETS,
    "class number": CLASS_NUMBER,
    "formulas as labels": FORMULAS_AS_LABELS,
}


def make_events(num_jets: int = 120, seed: int = 0) -> dict[str, Column]:
    """Return branches of random jets; some have no candidates, and a third have no vertices."""
    random = np.random.default_rng(seed)

    def offsets(lengths) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(lengths)])

    def particles(values, of) -> Jagged:
        return Jagged(np.asarray(values, dtype=np.float32), of)

    num_cands = random.integers(0, 30, num_jets)
    num_vertices = np.maximum(random.integers(-2, 6, num_jets), 0)
    cands, vertices, towers = offsets(num_cands), offsets(num_vertices), np.arange(num_jets + 1) * 15
    table: dict[str, Column] = {}
    for name, of in (("cand", cands), ("vertex", vertices), ("tower", towers)):
        total = int(of[-1])
        table |= {
            f"{name}_pt": particles(random.exponential(10, total) + 0.5, of),
            f"{name}_eta": particles(random.normal(0, 1, total), of),
            f"{name}_phi": particles(random.uniform(-3, 3, total), of),
        }
    num_cand, num_vertex = int(cands[-1]), int(vertices[-1])
    table["tower_pt"].contents[random.uniform(size=int(towers[-1])) < 0.5] = 0
    table |= {
        "cand_e": particles(table["cand_pt"].contents * np.cosh(table["cand_eta"].contents), cands),
        "cand_d0": particles(random.normal(0, 0.3, num_cand), cands),
        "cand_charge": particles(random.integers(-1, 2, num_cand), cands),
        "cand_is_good": Jagged((random.uniform(size=num_cand) < 0.7).astype(np.int32), cands),
        "vertex_mass": particles(random.exponential(2, num_vertex), vertices),
        "vertex_d3d": particles(random.exponential(1, num_vertex), vertices),
        "embedding": particles(random.normal(0, 1, 8 * num_jets), np.arange(num_jets + 1) * 8),
        "jet_pt": (random.exponential(100, num_jets) + 20).astype(np.float32),
        "jet_eta": random.normal(0, 1, num_jets).astype(np.float32),
        "jet_mass": random.exponential(20, num_jets).astype(np.float32),
        "jet_ntracks": num_cands.astype(np.float32),
        "gen_mass": random.exponential(20, num_jets).astype(np.float32),
        "gen_pt": random.exponential(90, num_jets).astype(np.float32),
        "has_gen": (random.uniform(size=num_jets) < 0.8).astype(np.int32),
        "class_number": random.integers(0, 188, num_jets).astype(np.int32),
    }
    kind = random.integers(0, 3, num_jets)
    table |= {
        name: (kind == number).astype(np.int32) for number, name in enumerate(["is_b", "is_c", "is_light"])
    }
    return table


def write_events(path: Path, num_jets: int = 120, seed: int = 0, **changes: Column) -> Path:
    """Write random jets to a ROOT file; `changes` replaces or adds branches."""
    write_table(path, make_events(num_jets, seed) | changes)
    return path
