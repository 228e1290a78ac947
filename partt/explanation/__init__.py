"""Tagger + labelled jets -> which inputs matter, where the network looks, jets to look at."""
