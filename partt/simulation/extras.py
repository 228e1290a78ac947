"""What files of simulated jets may have beyond the branches of JetClass."""

EXTRAS = {
    "vertices": "sv_*, jet_nsv",
    "generator": "gen_jet_*, gen_resonance_mass, part_origin",
}
