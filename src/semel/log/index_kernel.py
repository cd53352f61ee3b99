# cython: language_level=3, boundscheck=False, wraparound=False
"""The search in an index, compiled or plain Python: a reader asks for every answer it gets."""

from __future__ import annotations

try:
    import cython
except ImportError:  # an install without Cython and without a compiled kernel
    from semel.records import _cython_shadow as cython

compiled: bool = cython.compiled

_ENTRY_BYTES = cython.declare(cython.Py_ssize_t, 8)


def last_up_to(entries: cython.const[cython.uchar][::1], most: cython.longlong) -> int:
    """Which entry is the last whose first number, of four bytes, is `most` or less; -1: none. An entry has eight bytes,
    and they stand in the order of those numbers."""
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t = len(entries) // _ENTRY_BYTES
    middle: cython.Py_ssize_t
    at: cython.Py_ssize_t
    number: cython.longlong
    while low < high:
        middle = (low + high) // 2
        at = middle * _ENTRY_BYTES
        number = entries[at]
        if number >= 0x80:
            number -= 0x100
        number = ((number * 0x100 + entries[at + 1]) * 0x100 + entries[at + 2]) * 0x100 + entries[at + 3]
        if number <= most:
            low = middle + 1
        else:
            high = middle
    return low - 1
