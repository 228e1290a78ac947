"""Let malloc keep freed memory for the next tensors, in one piece, instead of returning it to the system.

glibc returns large freed blocks at once; the next tensor of the same size then waits for the kernel to map
and clear its pages. That costs a fifth of the time of a training step (benchmarks/bench_model.py). What it
keeps is in pages of 2 MB where the kernel grants them on request: looking up 4 kB pages costs a twentieth.

Small blocks that live long would break up what is kept, so that large tensors no longer fit and the heap
grows. oneDNN makes such blocks: it compiles a kernel for every new size of a tensor and keeps the last 1024.
In training sizes are new in every step (pairs of particles of a batch), and most kernels are never used again
(benchmarks/bench_memory.py).

These are settings of the whole process, and they stay until it ends: results do not depend on them. Only this
module changes them, when a training run or the scoring of jets starts.
"""

import ctypes
import os
from functools import cache

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # malloc.h
_MEGABYTE = 1 << 20
_MADV_HUGEPAGE, _LARGE_PAGE = 14, 2 * _MEGABYTE  # mman.h
_MARKED = 1500 * _MEGABYTE  # less than the trim threshold, so that malloc keeps it
_KERNELS = "128"  # more than one step uses again; compiling one takes 0.2 to 0.4 ms


@cache
def keep_freed_memory() -> bool:
    """Let this process's malloc keep freed memory, once; return False if it is not glibc's."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # Blocks with their own mapping are returned when freed. The threshold for that is at most 32 MB, less
    # than a tensor of all pairs, so allow no such blocks.
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2000 * _MEGABYTE), (_M_TOP_PAD, 64 * _MEGABYTE))
    if not all(mallopt(option, value) for option, value in settings):
        return False
    _ask_for_large_pages()
    return True


def keep_few_kernels() -> None:
    """Let oneDNN keep few kernels, for training; it reads this once, when it computes for the first time.

    Scoring keeps more: its sizes repeat, and compiling a linear layer takes milliseconds.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", _KERNELS)


def _ask_for_large_pages() -> None:
    """Let the kernel map the memory of the next tensors in pages of 2 MB, if it has some.

    A large block of malloc is marked and freed again: it stays malloc's, and is not resident until used.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "madvise"):
        return
    libc.malloc.restype = ctypes.c_void_p
    block = libc.malloc(ctypes.c_size_t(_MARKED))
    if block is None:
        return
    start = -(-block // _LARGE_PAGE) * _LARGE_PAGE
    libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(_MARKED - _LARGE_PAGE), _MADV_HUGEPAGE)
    libc.free(ctypes.c_void_p(block))
