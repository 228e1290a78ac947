"""Whether a network is being traced for export."""

import torch


def is_exporting() -> bool:
    """Return whether torch traces this call (torch.export, torch.compile, ONNX) instead of computing it."""
    return torch.compiler.is_compiling() or bool(torch.jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]
