"""Data directories of earlier versions open, with all that was in them, and go on.

`tests/directories/37ff9dd-*.tar.gz` were written by the code of commit 37ff9dd: metadata.version 7, no LeaderChange
records, internal topics of factor 1; one was stopped, one killed. In each: 40 plain records and 12 in transactions, of
which the third was aborted, in `payments`; a compacted `table`; the offsets of the group `readers`.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from real_broker import RealBroker
from semel.client.metadata import TopicPartition
from semel.sync import Admin, Consumer, Producer

DIRECTORIES = sorted((Path(__file__).parent.parent / "directories").glob("*.tar.gz"))
COMMITTED = {b"plain %d" % number for number in range(40)} | {b"tx %d %d" % (t, n) for t in (0, 1, 3) for n in range(3)}


@pytest.fixture(params=DIRECTORIES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RealBroker]:
    with tarfile.open(request.param) as packed:
        packed.extractall(tmp_path / "data", filter="data")
    broker = RealBroker(tmp_path)
    try:
        yield broker.start()
    finally:
        broker.reap()


def read(broker: RealBroker, count: int) -> set[bytes]:
    found: set[bytes] = set()
    options = {
        "bootstrap_servers": broker.address,
        "isolation_level": "read_committed",
        "auto_offset_reset": "earliest",
    }
    with Consumer(**options) as consumer:
        consumer.assign([TopicPartition("payments", index) for index in (0, 1)])
        for _ in range(100):
            for messages in consumer.poll(timeout_ms=100).values():
                found |= {bytes(message.value or b"") for message in messages}
            if len(found) >= count:
                break
    return found


def test_it_opens_and_goes_on(broker: RealBroker) -> None:
    assert read(broker, len(COMMITTED)) == COMMITTED
    with Admin(bootstrap_servers=broker.address) as admin:
        offsets = admin.list_group_offsets("readers")["readers"]
        assert sum(found.offset for found in offsets.values()) > 0
    with Producer(bootstrap_servers=broker.address, transactional_id="tx-1") as producer, producer.transaction():
        producer.send("payments", b"tx 4 0", partition=0)
    broker.stop()
    broker.start()
    assert read(broker, len(COMMITTED) + 1) == COMMITTED | {b"tx 4 0"}
