"""Filters as they are typed."""

from __future__ import annotations

import pytest

from semel.client.metadata import TopicPartition
from semel.records.read import Record
from semel.views.record_filter import key_filter, record_filter
from semel.views.records import SeenRecord
from semel.views.refusals import Misasked


def seen(
    value: bytes | None, key: bytes | None = b"42", headers: tuple[tuple[str, bytes | None], ...] = ()
) -> SeenRecord:
    return SeenRecord(TopicPartition("t", 0), Record(0, 0, key, value, headers), -1, -1, "plain", True)


ORDER = seen(
    b'{"order": {"id": 7, "items": [{"sku": "a-1"}]}, "amount": 12.5, "name": "Till", "paid": true}',
    headers=(("source", b"app"),),
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "till",
        "TILL amount",
        '"12.5, "',
        "key:4",
        "value:sku",
        "header:source=app",
        ".order.id=7",
        ".order.id!=8",
        ".amount>12",
        ".amount<=12.5",
        ".paid=true",
        ".name=Till",
        ".order.items.0.sku=a-1",
        "-missing",
        ".nothing!=1",
        ".name>=Tilk",
        "source",
    ],
)
def test_it_fits(text: str) -> None:
    assert record_filter(text)(ORDER)


@pytest.mark.parametrize(
    "text",
    [
        "missing",
        "till missing",
        "-till",
        "key:till",
        "value:42x",
        "header:source=ap",
        ".order.id=8",
        ".order.id>7",
        ".name>5",
        ".nothing=1",
        ".order.items.3.sku=a-1",
    ],
)
def test_it_does_not_fit(text: str) -> None:
    assert not record_filter(text)(ORDER)


def test_what_is_no_json_has_no_fields() -> None:
    assert not record_filter(".a=1")(seen(b"\xff"))
    assert not record_filter(".a=1")(seen(None))
    assert not record_filter(".a=1")(seen(b"[" * 100_000))


@pytest.mark.parametrize(
    ("text", "told"),
    [('"open', "quotation mark"), ("header:source", "header:NAME=VALUE"), ("x " * 13, "13 terms"), ("x" * 501, "501")],
)
def test_what_is_not_understood_is_refused(text: str, told: str) -> None:
    with pytest.raises(Misasked, match=told):
        record_filter(text)


def test_a_key_is_the_whole_key() -> None:
    assert key_filter(b"42")(ORDER)
    assert not key_filter(b"4")(ORDER)
    assert not key_filter(b"42")(seen(b"", None))
