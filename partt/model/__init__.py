"""Tensors -> logits; imports nothing from data."""
