"""Taggers, trained networks with everything needed to use them: files, inference, shipped taggers."""
