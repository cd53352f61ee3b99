"""Sequence numbers of idempotent producers: they count records and wrap, so that 0 follows 2**31 - 1."""

from __future__ import annotations

NO_SEQUENCE = -1
_MODULUS = 2**31


def next_sequence(sequence: int, count: int) -> int:
    """The sequence `count` records after `sequence`."""
    return (sequence + count) % _MODULUS


def sequence_distance(earlier: int, later: int) -> int:
    """How many records lie from `earlier` up to `later`, going forwards round the ring: 0 to 2**31 - 1.

    On a ring "before" is a matter of the shorter way: a distance of more than 2**30 means that `later` lies behind.
    """
    return (later - earlier) % _MODULUS
