"""What can be wrong with a record batch. All of it is the sender's or the disk's fault, never ours, so a broker turns
each into an error code on the wire and a reader stops before it trusts the bytes.
"""

from __future__ import annotations


class RecordError(ValueError):
    """Bytes that are not a record batch we can accept."""


class CorruptBatch(RecordError):
    """The header, the length, the checksum or the compressed payload is broken."""


class InvalidRecord(RecordError):
    """The batch is whole, but a record inside it breaks the format."""


class UnsupportedCodec(RecordError):
    """The attributes name a compression codec that does not exist."""


class BatchTooLarge(RecordError):
    """The records take more room than the caller, or the format, allows."""
