"""Let malloc keep freed memory for the next tensors, instead of returning it to the system.

glibc returns large freed blocks at once; the next tensor of the same size then waits for the kernel to map
and clear its pages. That costs a fifth of the time of a training step (benchmarks/bench_model.py).

This is a setting of the whole process, and it stays until the process ends: results do not depend on it. Only
this module changes it, when a training run or the scoring of jets starts.
"""

import ctypes
from functools import cache

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # malloc.h
_MEGABYTE = 1 << 20


@cache
def keep_freed_memory() -> bool:
    """Let this process's malloc keep freed memory, once; return False if it is not glibc's."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # Blocks with their own mapping are returned when freed. The threshold for that is at most 32 MB, less
    # than a tensor of all pairs, so allow no such blocks.
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2000 * _MEGABYTE), (_M_TOP_PAD, 64 * _MEGABYTE))
    return all(mallopt(option, value) for option, value in settings)
