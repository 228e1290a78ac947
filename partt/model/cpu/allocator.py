"""Keep memory that tensors have freed, instead of handing it back to the system at every step.

glibc returns large freed blocks at once; the next tensor of the same size then waits for the kernel to map
and clear its pages. That costs a fifth of the time of a training step (benchmarks/bench_model.py).
"""

import ctypes
from functools import cache

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # malloc.h
_MEGABYTE = 1 << 20


@cache
def keep_freed_memory() -> bool:
    """Tell this process's malloc to keep freed memory; return False where it is not glibc's."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # A block mapped on its own goes back when freed, and the size above which blocks are is at most 32 MB,
    # less than a tensor of all pairs: so map none.
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2000 * _MEGABYTE), (_M_TOP_PAD, 64 * _MEGABYTE))
    return all(mallopt(option, value) for option, value in settings)
