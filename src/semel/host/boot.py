"""Which boot of the machine this is: while it is the same, nothing that was written to the page cache is lost."""

_FILE = "/proc/sys/kernel/random/boot_id"


def boot_id() -> str:
    """Empty if that is not known."""
    try:
        with open(_FILE) as file:
            return file.read().strip()
    except OSError:
        return ""
