"""What a start finds in the page cache was perhaps never written to the disk: whoever was killed had not flushed it, or
the flush has failed. What a failed flush leaves behind counts as clean: it is flushed only if it is written again."""

from semel.host.api import Disk, File

AT_ONCE_BYTES = 1 << 20


def write_again(file: File, position: int) -> None:
    """From `position` to the end. The caller flushes."""
    while data := file.read_at(position, AT_ONCE_BYTES):
        file.write_at(position, data)
        position += len(data)


def make_durable(disk: Disk, path: str) -> None:
    """A whole, small file, if it is there."""
    if disk.exists(path):
        file = disk.open(path)
        write_again(file, 0)
        file.flush_now()
        file.close()
