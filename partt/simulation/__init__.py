"""Pythia 8 -> JetClass-style ROOT files: generator, detector, jets, truth labels, files."""
