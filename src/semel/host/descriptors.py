"""Who may have how many of the descriptors that the system grants this process.

Connections, the files of the disk, and all else (imports, directories, pipes of a worker) each have a share, so that
none of them can take what another one needs: a node refuses connections long before it cannot open a segment.
"""

from __future__ import annotations

import errno
import os
import resource
from contextlib import suppress
from sys import maxsize
from typing import NamedTuple

# For imports, directories that are synchronised, a worker's pipes, and files that cannot wait for others to be closed.
_RESERVED = 24
_USUALLY_OPEN = 16
_LEAST_SHARE = 8
_ENOUGH_FILES = 100_000


class Shares(NamedTuple):
    limit: int
    files: int
    connections: int


def is_short(error: BaseException) -> bool:
    """Whether this is want of descriptors, of this process or of the whole system: it passes."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def raise_limit() -> None:
    """To the hard limit, as Java does: the soft one is often 1,024, and each partition and connection takes one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # what the system does not grant is not there
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _open_now() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:  # a container that does not show it
        return _USUALLY_OPEN


def shares() -> Shares:
    """Half of what is not open or reserved is for files, half for connections."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return Shares(maxsize, _ENOUGH_FILES, maxsize)
    half = max(_LEAST_SHARE, (limit - _open_now() - _RESERVED) // 2)
    return Shares(limit, half, half)
