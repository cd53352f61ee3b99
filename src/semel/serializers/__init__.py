"""Ready serializers: JSON, Avro and Protobuf, plain or in the framing of Confluent's schema registry.

    from semel.serializers import Avro, Json, SchemaRegistry

    orders = Json(Order)  # a dataclass, a msgspec Struct or a pydantic model
    semel.Producer(value_serializer=orders)
    semel.Consumer("orders", value_deserializer=orders)

Each is both: it serializes and deserializes. One that has a registry fetches and registers schemas outside of the event
loop, and remembers them.
"""

from semel.serializers.avro import Avro as Avro
from semel.serializers.errors import RegistryRefused as RegistryRefused
from semel.serializers.errors import RegistryUnavailable as RegistryUnavailable
from semel.serializers.framed_json import JsonSchema as JsonSchema
from semel.serializers.plain_json import Json as Json
from semel.serializers.protobuf import Protobuf as Protobuf
from semel.serializers.registry import Reference as Reference
from semel.serializers.registry import Schema as Schema
from semel.serializers.registry import SchemaRegistry as SchemaRegistry
from semel.serializers.subjects import record_name as record_name
from semel.serializers.subjects import topic_name as topic_name
from semel.serializers.subjects import topic_record_name as topic_record_name

__all__ = [
    "Avro",
    "Json",
    "JsonSchema",
    "Protobuf",
    "Reference",
    "RegistryRefused",
    "RegistryUnavailable",
    "Schema",
    "SchemaRegistry",
    "record_name",
    "topic_name",
    "topic_record_name",
]
