"""Memory that is there when it is needed.

A virtual machine may have given what nothing used back to its host, and waits for every page of it that is touched
again: a broker that writes into the page cache then spends more time on that than on its work, a few seconds later it
does not, and a row measures which of the two was met.
"""

from __future__ import annotations

import mmap
import os

_MOST_SHARE = 4


def fetch_back(size_bytes: int) -> None:
    """Touches so much memory, or a part of what is free if that is less, and lets go of it: whoever needs some next
    gets that."""
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    size_bytes = min(size_bytes, free_bytes // _MOST_SHARE)
    if size_bytes:
        mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()
