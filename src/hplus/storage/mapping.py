"""Files as read-only memory that keeps no handle open.

Python's own `mmap` duplicates the handle (before 3.13 always), so an index of many segments would
run into the limit of 1,024 handles, or of 256 on macOS. The system itself needs none: a mapping
lives on when the file is closed, and even when it is removed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.uint8]
_FAILED = ctypes.c_void_p(-1).value


def map_file(handle: int) -> memoryview:
    """The bytes of an open file, which may be closed afterwards.

    They are unmapped when the last array over them is gone.
    """
    size = os.fstat(handle).st_size
    if not size:
        raise ValueError("the file is empty")
    if os.name == "nt":  # pragma: no cover  # it has no such limit
        return memoryview(mmap.mmap(handle, 0, access=mmap.ACCESS_READ))
    map_, unmap = _system()
    address = map_(None, size, mmap.PROT_READ, mmap.MAP_SHARED, handle, 0)
    if address == _FAILED:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    memory = (ctypes.c_ubyte * size).from_address(address)
    # Not at exit: a thread may still be reading.
    weakref.finalize(memory, unmap, address, size).atexit = False
    data: Array = np.ctypeslib.as_array(memory)
    data.flags.writeable = False
    return data.data


@cache
def _system() -> tuple[Any, Any]:
    library = ctypes.CDLL(None, use_errno=True)
    map_, unmap = library.mmap, library.munmap
    number = ctypes.c_int
    map_.restype = ctypes.c_void_p
    map_.argtypes = [ctypes.c_void_p, ctypes.c_size_t, number, number, number, ctypes.c_long]
    unmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return map_, unmap
