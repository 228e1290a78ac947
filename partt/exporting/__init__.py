"""Tagger -> ONNX file: preprocessing and network in one graph, verified before it is written."""
