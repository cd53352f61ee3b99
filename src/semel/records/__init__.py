"""Record batches, magic 2: the unit that producers send, logs store and consumers read.

`batch` reads and checks, `build` makes, `read` decodes, `compact` keeps a part, `control` holds transaction markers,
`compression` the codecs, `sequences` the arithmetic of producer sequences. The loops over records live in `kernel`.
"""

from __future__ import annotations

_warned = False


def warn_if_uncompiled() -> bool:
    """Says once, on the logger `semel`, that records will be slow. Returns whether the kernel is uncompiled."""
    global _warned
    import logging  # here, as nothing else in this room needs it and importing it takes milliseconds

    from semel.records import kernel

    if not kernel.compiled and not _warned:
        _warned = True
        logging.getLogger("semel").warning(
            "the record kernel is not compiled: producing and consuming will be many times slower "
            "(install a wheel, or a C compiler before installing from source)"
        )
    return not kernel.compiled
