"""Keep memory that tensors have freed, instead of handing it back to the system at every step.

glibc returns large freed blocks at once; the next tensor of the same size then waits for the kernel to map
and clear its pages. That costs a fifth of the time of a training step
(benchmarks/bench_model.py).
"""

import ctypes
from functools import cache

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h
_MEGABYTE = 1 << 20


@cache
def keep_freed_memory() -> bool:
    """Tell this process's malloc to keep freed memory; return False where it is not glibc's."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((_M_MMAP_THRESHOLD, 32), (_M_TRIM_THRESHOLD, 2000), (_M_TOP_PAD, 64))  # 32 is the most
    return all(mallopt(option, megabytes * _MEGABYTE) for option, megabytes in settings)
