"""Under which subject a schema stands in the registry: by topic, by the record's full name, or by both."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from semel.client.serialization import SerializationContext

SubjectName: TypeAlias = Callable[[SerializationContext, str], str]
"""Of where the record goes, and the full name of its schema."""


def topic_name(context: SerializationContext, record: str) -> str:
    """`orders-value`: one schema for a topic, that evolves. The registry's default."""
    return f"{context.topic}-{context.field}"


def record_name(context: SerializationContext, record: str) -> str:
    """`com.example.Order`: a topic may have records of several kinds, and a kind is the same in all topics."""
    return record


def topic_record_name(context: SerializationContext, record: str) -> str:
    """`orders-com.example.Order`: several kinds in a topic, which evolve for each topic alone."""
    return f"{context.topic}-{record}"
