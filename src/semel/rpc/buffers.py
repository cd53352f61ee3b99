"""Buffers for frames that do not come in one read, used again: fresh memory costs more than the copy into it."""

from mmap import mmap

_SMALLEST_BYTES = 256 << 10
LARGEST_KEPT_BYTES = 4 << 20
_MOST_SPARE_BYTES = 16 << 20


def size_of(length: int) -> int:
    """How many bytes a buffer for so many takes."""
    return 1 << (length - 1).bit_length() if _SMALLEST_BYTES <= length <= LARGEST_KEPT_BYTES else length


class SpareBuffers:
    """A few buffers in sizes of powers of two. Whoever gives one back has no more use for what is in it."""

    def __init__(self) -> None:
        self._spare: dict[int, list[bytearray]] = {}
        self.spare_bytes = 0

    def take(self, length: int) -> memoryview:
        """`length` bytes of whatever content. Small and very large ones are made to measure and not kept.

        The pages of a very large one take memory when something is written into them, and not before.
        """
        if length > LARGEST_KEPT_BYTES:
            return memoryview(mmap(-1, length))
        size = size_of(length)
        if size < _SMALLEST_BYTES:
            return memoryview(bytearray(length))
        spare = self._spare.get(size)
        if not spare:
            return memoryview(bytearray(size))[:length]
        self.spare_bytes -= size
        return memoryview(spare.pop())[:length]

    def give_back(self, view: memoryview) -> None:
        buffer = view.obj
        if isinstance(buffer, mmap):
            return
        if not isinstance(buffer, bytearray):
            raise TypeError(f"not a view of a buffer of ours: {buffer!r}")
        size = len(buffer)
        if _SMALLEST_BYTES <= size <= LARGEST_KEPT_BYTES and self.spare_bytes + size <= _MOST_SPARE_BYTES:
            self._spare.setdefault(size, []).append(buffer)
            self.spare_bytes += size
