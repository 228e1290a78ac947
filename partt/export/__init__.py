"""Tagger -> ONNX file: preprocessing and network in one graph, proved equal to torch before it gets its name."""
