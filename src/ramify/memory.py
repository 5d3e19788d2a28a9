"""Settings of the memory allocator for large tensors."""

import ctypes
import os
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Constants of glibc's malloc.h."""


def keep_pages() -> None:
    """Keep freed memory for later tensors, and allocate tensors in huge pages.

    Otherwise Linux maps fresh pages of 4 KiB one fault at a time, which takes a third of the time of a training step on CPU.
    The setting lasts as long as the process. Huge pages need the call to come before the first import of torch. On systems
    other than Linux with glibc, the function does nothing.
    """
    if sys.platform != "linux":
        return
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 1 << 30)
        mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
