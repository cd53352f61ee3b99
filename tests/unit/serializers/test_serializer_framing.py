"""Serializers by themselves and with a registry of the test's own: bytes, types, what is asked of the registry."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from registry_server import RegistryServer
from semel.client.errors import BadSetting
from semel.client.serialization import NotReady, SerializationContext
from semel.serializers import (
    Avro,
    Json,
    JsonSchema,
    Protobuf,
    Reference,
    RegistryRefused,
    RegistryUnavailable,
    Schema,
    SchemaRegistry,
    record_name,
    topic_record_name,
)
from semel.serializers.any_text import AnyText
from semel.serializers.protobuf import index_bytes, read_index

VALUE = SerializationContext("orders", "value")
KEY = SerializationContext("orders", "key")


@dataclass
class Order:
    number: int
    text: str = ""


class StructOrder(msgspec.Struct):
    number: int
    text: str = ""


class ModelOrder(pydantic.BaseModel):
    number: int
    text: str = ""


KINDS = pytest.mark.parametrize("kind", [Order, StructOrder, ModelOrder])
AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "number", "type": "long"}, {"name": "text", "type": "string"}],
}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


def ready(function: Any, *arguments: Any) -> Any:
    """As the client does it: what is missing is fetched, and then it is asked again."""
    while True:
        try:
            return function(*arguments)
        except NotReady as missing:
            missing.fetch()


# -- JSON


@KINDS
def test_json_of_a_class_there_and_back(kind: Any) -> None:
    orders = Json(kind)
    data = orders.serialize(kind(number=7, text="ä"), VALUE)
    assert data == '{"number":7,"text":"ä"}'.encode()
    assert orders.deserialize(data, VALUE) == kind(number=7, text="ä")
    with pytest.raises((msgspec.ValidationError, pydantic.ValidationError)):
        orders.deserialize(b'{"number":"seven"}', VALUE)


def test_json_of_plain_values_and_of_nothing() -> None:
    plain = Json()
    assert plain.serialize({"a": [1, None]}) == b'{"a":[1,null]}'
    assert plain.deserialize(b'{"a":[1,null]}') == {"a": [1, None]}
    assert plain.serialize(None) is None
    assert Json(list[Order]).deserialize(b'[{"number":1}]') == [Order(1)]


def test_what_is_not_installed_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec.json", None)
    with pytest.raises(BadSetting, match=r"Json\(Order\) needs msgspec.*pip install 'semel\[json\]'"):
        Json(Order)


# -- Avro


def test_avro_in_the_registrys_framing(server: RegistryServer) -> None:
    orders = Avro(SchemaRegistry(server.url), AVRO)
    data = ready(orders.serialize, {"number": 7, "text": "ab"}, VALUE)
    assert data == b"\0" + b"\0\0\0\x01" + b"\x0e" + b"\x04ab"
    assert ready(orders.deserialize, data, VALUE) == {"number": 7, "text": "ab"}
    ready(orders.serialize, {"number": 8, "text": ""}, VALUE)
    assert server.asked == ["POST /subjects/orders-value/versions", "GET /schemas/ids/1"], "and then it is known"
    assert ready(orders.serialize, {"number": 7, "text": ""}, KEY)
    assert server.asked[2:] == ["POST /subjects/orders-key/versions"]


@KINDS
def test_avro_of_a_class(server: RegistryServer, kind: Any) -> None:
    orders = Avro(SchemaRegistry(server.url), AVRO, kind)
    data = ready(orders.serialize, kind(number=7, text="x"), VALUE)
    assert ready(orders.deserialize, data, VALUE) == kind(number=7, text="x")


def test_a_reader_has_a_schema_of_its_own_and_one_without_reads_what_was_written(server: RegistryServer) -> None:
    written = ready(Avro(SchemaRegistry(server.url), AVRO).serialize, {"number": 7, "text": "x"}, VALUE)
    later = {**AVRO, "fields": [AVRO["fields"][0], {"name": "paid", "type": "boolean", "default": False}]}  # type: ignore[index]
    reader = Avro(SchemaRegistry(server.url), json.dumps(later))
    assert ready(reader.deserialize, written, VALUE) == {"number": 7, "paid": False}
    anything = Avro(SchemaRegistry(server.url))
    assert ready(anything.deserialize, written, VALUE) == {"number": 7, "text": "x"}
    with pytest.raises(BadSetting, match="needs a schema to write by"):
        anything.serialize({}, VALUE)


def test_schemas_may_refer_to_each_other(server: RegistryServer) -> None:
    registry = SchemaRegistry(server.url)
    money = {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}
    registry.register("money", Schema(json.dumps(money)))
    bill = {"type": "record", "name": "shop.Bill", "fields": [{"name": "sum", "type": "shop.Money"}]}
    references = (Reference("shop.Money", "money", 1),)
    bills = Avro(SchemaRegistry(server.url), bill, references=references, subject=record_name)
    data = ready(bills.serialize, {"sum": {"cents": 250}}, VALUE)
    assert "POST /subjects/shop.Bill/versions" in server.asked
    assert ready(Avro(SchemaRegistry(server.url)).deserialize, data, VALUE) == {"sum": {"cents": 250}}


def test_a_topic_may_have_records_of_several_kinds(server: RegistryServer) -> None:
    orders = Avro(SchemaRegistry(server.url), AVRO, subject=topic_record_name)
    ready(orders.serialize, {"number": 7, "text": "x"}, VALUE)
    assert server.asked == ["POST /subjects/orders-shop.Order/versions"]


# -- Protobuf


def proto_classes(prefix: str) -> dict[str, Any]:
    """Two files, of which one imports the other and the library's; a message in a message."""
    common = descriptor_pb2.FileDescriptorProto(name=f"{prefix}/common.proto", package=prefix, syntax="proto3")
    money = common.message_type.add(name="Money")
    money.field.add(name="cents", number=1, type=3, label=1)
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{prefix}/order.proto",
        package=prefix,
        syntax="proto3",
        dependency=[common.name, "google/protobuf/timestamp.proto"],
    )
    file.message_type.add(name="First").field.add(name="text", number=1, type=9, label=1)
    order = file.message_type.add(name="Order")
    order.field.add(name="price", number=1, type=11, label=1, type_name=f".{prefix}.Money")
    order.field.add(name="placed_at", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    order.nested_type.add(name="Line").field.add(name="item", number=1, type=9, label=1)
    from google.protobuf import timestamp_pb2

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(common)
    pool.Add(file)
    names = ("Money", "First", "Order", "Order.Line")
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{prefix}.{name}")) for name in names}


def test_protobuf_says_which_message_of_its_file_it_is(server: RegistryServer) -> None:
    kinds = proto_classes("shop1")
    registry = SchemaRegistry(server.url)
    for name, index in (("First", b"\0"), ("Order", b"\x02\x02"), ("Order.Line", b"\x04\x02\x00")):
        kind = kinds[name]
        format = Protobuf(registry, kind)
        message = kind()
        data = ready(format.serialize, message, VALUE)
        assert data[5:] == index
        assert ready(format.deserialize, data, VALUE) == message
    assert "POST /subjects/shop1%2Fcommon.proto/versions" in server.asked, "what it imports is registered first"
    with pytest.raises(TypeError, match=r"not a shop1\.First"):
        Protobuf(registry, kinds["First"]).serialize(kinds["Order"](), VALUE)


def test_places_of_messages_are_read_as_they_are_written() -> None:
    for index in ([0], [1], [0, 0], [3, 200, 70_000]):
        data = index_bytes(index)
        assert read_index(memoryview(data + b"rest")) == (index, len(data))
    with pytest.raises(ValueError, match="cannot be read"):
        read_index(memoryview(b"\x04\x80"))


# -- JSON with a schema


@KINDS
def test_json_with_the_schema_of_its_class(server: RegistryServer, kind: Any) -> None:
    orders = JsonSchema(SchemaRegistry(server.url), kind)
    data = ready(orders.serialize, kind(number=7), VALUE)
    assert data == b'\0\0\0\0\x01{"number":7,"text":""}'
    assert ready(orders.deserialize, data, VALUE) == kind(number=7)
    kept = SchemaRegistry(server.url).schema(1)
    assert kept.kind == "JSON"
    assert "number" in kept.text


# -- for people


def test_whatever_a_registry_describes_is_shown_as_json(server: RegistryServer) -> None:
    kinds = proto_classes("shop2")
    registry = SchemaRegistry(server.url)
    order = kinds["Order"]()
    order.price.cents = 250
    order.placed_at.seconds = 60
    shown = AnyText(SchemaRegistry(server.url))
    for data, text in (
        (ready(Avro(registry, AVRO).serialize, {"number": 7, "text": "ä"}, VALUE), '{"number": 7, "text": "ä"}'),
        (ready(JsonSchema(registry, Order).serialize, Order(7), VALUE), '{"number":7,"text":""}'),
        (
            ready(Protobuf(registry, kinds["Order"]).serialize, order, VALUE),
            '{"price": {"cents": "250"}, "placed_at": "1970-01-01T00:01:00Z"}',
        ),
        (b"plain", "plain"),
        (b"", ""),
    ):
        assert ready(shown.deserialize, data, VALUE).decode() == text


# -- the registry


def test_what_the_registry_refuses_is_told_with_its_reason(server: RegistryServer) -> None:
    server.refused_subjects.add("orders-value")
    orders = Avro(SchemaRegistry(server.url), AVRO)
    with pytest.raises(RegistryRefused, match=r"incompatible \(409\)"):
        ready(orders.serialize, {"number": 7, "text": ""}, VALUE)
    only_known = Avro(SchemaRegistry(server.url), AVRO, register=False)
    with pytest.raises(RegistryRefused, match="Schema not found"):
        ready(only_known.serialize, {"number": 7, "text": ""}, KEY)
    with pytest.raises(RegistryRefused, match="Schema not found") as refused:
        ready(orders.deserialize, b"\0\0\0\0\x63rest", VALUE)
    assert refused.value.registry_code == 40403
    with pytest.raises(ValueError, match="begin with 7b"):
        orders.deserialize(b'{"number"', VALUE)


def test_one_that_fails_is_left_for_the_next_and_none_is_an_error_that_may_pass(server: RegistryServer) -> None:
    server.failures.append(500)
    nobody = "http://127.0.0.1:9"
    registry = SchemaRegistry([nobody, server.url])
    with pytest.raises(RegistryUnavailable, match=r"127\.0\.0\.1:9.*refused.*the store has failed"):
        registry.register("s", Schema('"int"'))
    assert registry.register("s", Schema('"int"')) == 1
    assert registry.latest("s").version == 1


def test_it_is_told_who_asks() -> None:
    with RegistryServer(credentials="till:secret") as server:
        with pytest.raises(RegistryRefused, match="who are you"):
            SchemaRegistry(server.url).register("s", Schema('"int"'))
        assert SchemaRegistry(server.url, basic_auth=("till", "secret")).register("s", Schema('"int"')) == 1


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(BadSetting, match="no address of a schema registry"):
        SchemaRegistry("localhost:8081")
    with pytest.raises(BadSetting, match="not a valid Avro schema"):
        Avro(SchemaRegistry(), {"type": "record"})
    with pytest.raises(BadSetting, match="no class that protoc has made"):
        Protobuf(SchemaRegistry(), Order)
