"""Tagger + files -> scores, in order and complete."""
