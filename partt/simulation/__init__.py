"""Pythia 8 -> JetClass-style ROOT files: generator, detector, jet finding, truth labels, files."""
