"""Whether a network is computed, or recorded to be exported."""

import torch


def is_exporting() -> bool:
    """Return whether this call is recorded (torch.export, torch.compile, ONNX) instead of computed."""
    return torch.compiler.is_compiling() or bool(torch.jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]
