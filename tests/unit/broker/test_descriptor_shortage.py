"""A node that finds no descriptor goes on: what it could not do is done when there are some again."""

from __future__ import annotations

import asyncio
import errno
import sys
from collections.abc import Callable
from typing import Any

import pytest
from broker_harness import Node, batch_of, fetch_request, simulated

from semel.broker.handlers import HANDLERS
from semel.wire.spec.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic


class Shortage:
    """Calls of the disk that find no descriptor."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.is_on = True
        self.refused = 0
        disk: Any = node.broker.host.disk
        for name in names:
            monkeypatch.setattr(disk, name, self._refusing(getattr(disk, name)))

    def _refusing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            if self.is_on:
                self.refused += 1
                raise OSError(errno.EMFILE, "too many open files")
            return call(*args, **kwargs)

        return refuse


@simulated()
async def test_handlers_are_imported_before_the_gate_opens(node: Node) -> None:
    for served in HANDLERS.values():
        assert f"semel.broker.handlers.{served.module}" in sys.modules
    assert node.broker._router._routes["PLAINTEXT"].keys() == HANDLERS.keys()


@simulated()
async def test_a_topic_made_in_a_shortage_is_served_when_it_is_over(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = await node.client()
    shortage = Shortage(node, monkeypatch, "read_file")
    assert (await client.create_topic("t", partitions=30)).error_code == 0
    assert (await client.produce("t", batch_of(b"a"))).error_code == 56
    await asyncio.sleep(30)
    assert (await client.produce("t", batch_of(b"a"))).error_code == 56
    assert caplog.text.count("ulimit -n") == 1
    shortage.is_on = False
    await asyncio.sleep(2)
    for partition in range(30):
        assert (await client.produce("t", batch_of(b"a"), partition=partition)).error_code == 0
    assert not node.broken


@simulated()
async def test_a_topic_that_is_deleted_in_a_shortage_stays_deleted(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await node.client()
    shortage = Shortage(node, monkeypatch, "read_file")
    await client.create_topic("t", partitions=3)
    await client.create_topic("kept")
    await node.broker.controller.delete_topic(node.broker.image.topics["t"])
    shortage.is_on = False
    await asyncio.sleep(2)
    assert "t" not in node.broker.topics.by_name
    assert (await client.produce("kept", batch_of(b"a"))).error_code == 0


@simulated(settings={"log.flush.offset.checkpoint.interval.ms": "1000"})
async def test_upkeep_that_finds_no_descriptor_is_done_later(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"a"))
    shortage = Shortage(node, monkeypatch, "open", "replace_file")
    await asyncio.sleep(10)
    assert shortage.refused >= 2
    assert not node.broken
    shortage.is_on = False
    await asyncio.sleep(2)
    assert b"t 0 1" in node.broker.host.disk.read_file(f"{node.broker.store.root}/recovery-point-offset-checkpoint")


@simulated()
async def test_a_flush_that_finds_no_descriptor_is_tried_again_and_then_the_record_is_acknowledged(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await node.client()
    await client.create_topic("t")
    shortage = Shortage(node, monkeypatch, "sync_dir")
    producing = asyncio.ensure_future(client.produce("t", batch_of(b"a")))
    await asyncio.sleep(5)
    assert shortage.refused
    assert not producing.done()
    assert not node.broken
    shortage.is_on = False
    await asyncio.sleep(1)
    assert producing.done()
    assert (await producing).error_code == 0
    assert await client.values("t") == [b"a"]


@simulated()
async def test_a_segment_that_cannot_be_opened_refuses_the_batch_and_the_node_goes_on(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"a"))
    segment = node.broker.topics.partition("t", 0).log.segments[-1]
    shortage = Shortage(node, monkeypatch)
    file: Any = segment.file
    for name in ("write_at", "truncate", "pin"):
        monkeypatch.setattr(type(file), name, shortage._refusing(getattr(type(file), name)))
    assert (await client.produce("t", batch_of(b"b"))).error_code == 56
    response = await client.ask(fetch_request({("t", 0): 0}), 12)
    assert response.responses[0].partitions[0].error_code == 56
    assert not node.broken
    shortage.is_on = False
    assert (await client.produce("t", batch_of(b"c"))).error_code == 0
    assert await client.values("t") == [b"a", b"c"]


@simulated()
async def test_records_that_cannot_be_noted_as_deleted_are_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"a"))
    shortage = Shortage(node, monkeypatch, "replace_file")
    topic = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
    response = await client.ask(request)
    assert response.topics[0].partitions[0].error_code == 56
    assert not node.broken
    shortage.is_on = False
    assert (await client.ask(request)).topics[0].partitions[0].error_code == 0
