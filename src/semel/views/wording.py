"""How amounts and times are told, in commands and on pages."""

from __future__ import annotations

_LONG = (("d", 86_400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1))


def duration_text(duration_ms: float) -> str:
    """`250 ms`, `1.5 s`, `2 min 5 s`, `3 h 20 min`, `4 d 2 h`."""
    if duration_ms < 1000:
        return f"{duration_ms:.0f} ms"
    seconds = duration_ms / 1000
    for large, large_s, small, small_s in _LONG:
        if seconds >= large_s:
            whole, rest = divmod(int(seconds), large_s)
            return f"{whole} {large}" + (f" {rest // small_s} {small}" if rest >= small_s else "")
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def time_text(timestamp_ms: int) -> str:
    """Local time with its offset, in ISO 8601, as `--from` takes it."""
    from datetime import datetime

    return datetime.fromtimestamp(timestamp_ms / 1000).astimezone().isoformat(timespec="milliseconds")


def count_text(count: int, noun: str, plural: str | None = None) -> str:
    """`1 record`, `12 records`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def size_text(size_bytes: int) -> str:
    """`512 B`, `1.5 KB`, `12 MB`, `3.4 GB`: in steps of 1024."""
    size, units = float(size_bytes), ["B", "KB", "MB", "GB", "TB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        del units[0]
    return f"{size:.1f} {units[0]}" if units[0] != "B" and size < 10 else f"{size:.0f} {units[0]}"
