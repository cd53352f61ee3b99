"""Stands in for the `cython` module where the kernel runs uncompiled and Cython is not installed.

The kernel's annotations are never evaluated, so only what its body calls has to exist here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

compiled = False
longlong = ulonglong = Py_ssize_t = bint = int


def _unchanged(decorated: T) -> T:
    return decorated


cclass = cfunc = ccall = inline = final = _unchanged


def exceptval(value: object = None, *, check: bool = True) -> Callable[[T], T]:
    return _unchanged


def boundscheck(on: bool) -> Callable[[T], T]:
    return _unchanged


def declare(kind: object, value: T | None = None, *, visibility: str = "private") -> T | None:
    return value


def cast(kind: object, value: T) -> T:
    return value
