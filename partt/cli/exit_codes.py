"""Errors become one message on standard error and an exit code."""

import errno
import os
import sys
import traceback
from collections.abc import Callable

from partt.errors import OutputError, ParttError
from partt.jobs.stop_signals import SignalInterrupt

OUT_OF_MEMORY = "partt: error: out of memory; use smaller batches, or fewer threads or workers"


def exit_code_of(work: Callable[[], int | None], *, debug: bool) -> int:
    """Do some work and return its exit code; `debug` shows the traceback of an error."""
    try:
        code = int(work() or 0)
        sys.stdout.flush()
    except ParttError as error:
        if debug:
            traceback.print_exc()
        print(f"partt: error: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        print(f"partt: error: cannot write the output: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered goes there
        return OutputError.exit_code
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        print(OUT_OF_MEMORY, file=sys.stderr)
        return OutputError.exit_code
    except SignalInterrupt as interrupt:
        print(f"partt: stopped by {interrupt}", file=sys.stderr)
        return 128 + interrupt.number
    except KeyboardInterrupt:
        print("partt: interrupted", file=sys.stderr)
        return 130
    return code


def is_out_of_memory(error: Exception) -> bool:
    """Tell whether Python, numpy, or torch (which raises a RuntimeError) got no memory."""
    signs = ("allocate memory", "out of memory", "can't start new thread")
    of_onednn = str(error) == "could not create a primitive"  # its kernels need memory; it does not say so
    return isinstance(error, MemoryError) or of_onednn or any(sign in str(error) for sign in signs)
