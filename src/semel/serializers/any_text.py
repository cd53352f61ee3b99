"""What stands in a record for people: the framing says which schema, the registry what that is, and JSON shows it."""

from __future__ import annotations

import base64
import json
from datetime import date, datetime, time
from typing import Any

from semel.client.serialization import SerializationContext
from semel.serializers.avro import Avro
from semel.serializers.errors import NotFramed
from semel.serializers.framing import schema_of, unframed
from semel.serializers.protobuf import AnyMessage
from semel.serializers.registry import AVRO, PROTOBUF, SchemaRegistry


class AnyText:
    """Gives JSON as bytes. What is not framed, and so is not from a serializer with a registry, stays as it is."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._avro: Avro[Any] | None = None
        self._messages: AnyMessage | None = None

    def deserialize(self, data: bytes, context: SerializationContext, /) -> bytes:
        try:
            schema_id, payload = unframed(data)
        except NotFramed:
            return data
        kind = schema_of(self._registry, schema_id).kind
        if kind == AVRO:
            self._avro = self._avro or Avro(self._registry)
            return json.dumps(self._avro.deserialize(data), default=_shown, ensure_ascii=False).encode()
        if kind == PROTOBUF:
            self._messages = self._messages or AnyMessage(self._registry)
            return self._messages.json(schema_id, payload)
        return bytes(payload)


def _shown(value: Any) -> str:
    """What JSON has no form for."""
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, datetime | date | time) else str(value)
