"""Tagger -> ONNX file: preprocessing and network in one graph, proved before it gets its name."""
