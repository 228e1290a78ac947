"""The networks that the Particle Transformer is compared with, behind the same interface."""
