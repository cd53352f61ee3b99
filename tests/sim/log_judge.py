"""Judges what a restart made of a crashed disk, by the history of what was written before."""

from __future__ import annotations

import asyncio

from log_workload import History, Node

from semel.log.log import Log
from semel.log.producers import NO_SEQUENCE, Entry, Producers
from semel.records.batch import BatchHeader, check_crc, read_header, whole_batches
from semel.records.build import build_batch
from semel.records.control import ControlType, read_control
from semel.records.read import read_records
from semel.sim.disk import PowerLost, SimDisk
from semel.sim.loop import SimLoop, run


def judge_restart(disk: SimDisk, histories: dict[str, History]) -> None:
    run(_judge(disk, histories), loop=SimLoop(end_s=3600))


def restart(disk: SimDisk, histories: dict[str, History]) -> int:
    """Only starts, and does not survive if the disk is to lose power on the way; returns the disk calls it took."""

    async def start() -> None:
        Node(asyncio.get_running_loop(), disk, {topic: History(topic) for topic in histories}).start()

    try:
        run(start(), loop=SimLoop(end_s=3600))
    except PowerLost:
        pass
    return disk.calls


async def _judge(disk: SimDisk, histories: dict[str, History]) -> None:
    node = Node(asyncio.get_running_loop(), disk, {topic: History(topic) for topic in histories})
    node.start()
    for topic, history in histories.items():
        log = node.histories[topic].log
        assert log is not None
        assert log.end_offset >= history.flushed_offset, (topic, "acknowledged records are gone")
        assert log.start_offset <= history.start_offset, (topic, "the log begins too late")
        batches = read_all(log)
        if topic == "events":
            _judge_whole_batches(log, batches, history)
            _judge_aborted(log, history)
        else:
            _judge_table(log, batches, history)
        _judge_producers(log, history)
        _judge_next_sequences(node, topic, log)
    ends = {topic: log.end_offset for (topic, _), log in node.store.logs.items()}
    await node.commit(*histories)
    await node.store.close()
    assert not node.broken, node.broken
    again = Node(asyncio.get_running_loop(), disk, {topic: History(topic) for topic in histories})
    again.start()
    assert again.store.was_clean
    assert {topic: log.end_offset for (topic, _), log in again.store.logs.items()} == ends
    for log in again.store.logs.values():
        read_all(log)


def read_all(log: Log) -> list[tuple[BatchHeader, bytes]]:
    """Everything a reader gets, with small and large fetches mixed; every byte of it is checked."""
    found: list[tuple[BatchHeader, bytes]] = []
    offset, turn = log.start_offset, 0
    while offset < log.end_offset:
        read = log.read(offset, (1, 700, 1 << 20)[turn % 3], log.end_offset, at_least_one=True, warmed=True)
        turn += 1
        if read is None:
            break
        data = read.read()  # type: ignore[union-attr]
        read.release()  # type: ignore[union-attr]
        got_one = False
        for position, header in whole_batches(data):
            assert check_crc(data, position, header), f"a torn batch was served at offset {header.base_offset}"
            assert header.last_offset >= offset
            found.append((header, data[position : position + header.size_bytes]))
            offset = header.next_offset
            got_one = True
        assert got_one
    return found


def _judge_whole_batches(log: Log, batches: list[tuple[BatchHeader, bytes]], history: History) -> None:
    by_offset = {written.base_offset: written for written in history.written}
    expected = None
    for header, data in batches:
        assert by_offset[header.base_offset].data == data, f"offset {header.base_offset} is not what was written"
        if expected is not None and expected >= history.start_offset:
            assert header.base_offset == expected, f"offsets {expected} to {header.base_offset - 1} are missing"
        expected = header.next_offset
    served = {header.base_offset for header, _ in batches}
    for written in history.written:
        if history.start_offset <= written.base_offset and written.last_offset < log.end_offset:
            assert written.base_offset in served, f"offset {written.base_offset} is missing"


def model_of(history: History, end_offset: int) -> tuple[Producers, list[tuple[int, int, int]]]:
    """Producers and aborted transactions as the batches below `end_offset` made them."""
    producers = Producers()
    aborted: list[tuple[int, int, int]] = []
    for written in history.written:
        if written.last_offset >= end_offset:
            break
        header = read_header(written.data)
        marker = read_control(written.data, header) if header.is_control else None
        ended = producers.replay(header, marker, 0)
        if ended is not None and ended.aborted:
            aborted.append((ended.producer_id, ended.first_offset, ended.marker_offset))
    return producers, aborted


def _judge_producers(log: Log, history: History) -> None:
    model, _ = model_of(history, log.end_offset)
    want = {
        entry.producer_id: (entry._replace(timestamp_ms=0), model.window(entry.producer_id))
        for entry in model.entries()
    }
    got = {
        entry.producer_id: (entry._replace(timestamp_ms=0), log.producers.window(entry.producer_id))
        for entry in log.producers.entries()
    }
    assert got == want
    unstable = model.first_unstable_offset(log.end_offset)
    assert log.last_stable_offset == (log.end_offset if unstable is None else unstable)


def _judge_aborted(log: Log, history: History) -> None:
    _, aborted = model_of(history, log.end_offset)
    if log.start_offset == log.end_offset:
        return
    for offset in {log.start_offset, (log.start_offset + log.end_offset) // 2}:
        read = log.read(offset, 1 << 20, log.end_offset, at_least_one=True, warmed=True)
        if read is None:
            continue
        headers = [header for _, header in whole_batches(read.read())]  # type: ignore[union-attr]
        got = {(a.producer_id, a.first_offset, a.last_offset) for a in log.aborted_between(offset, read)}  # type: ignore[arg-type]
        read.release()  # type: ignore[union-attr]
        upper = headers[-1].next_offset
        for transaction in aborted:
            if transaction[2] >= offset and transaction[1] < upper:
                assert transaction in got, f"the aborted transaction {transaction} would be read as committed"
        assert got <= set(aborted), "a transaction is called aborted that was not"


def _judge_table(log: Log, batches: list[tuple[BatchHeader, bytes]], history: History) -> None:
    """Compacted: what is there was written, and every key has the value that the whole history gives it."""
    records = {}
    for written in history.written:
        for record in read_records(written.data):
            records[record.offset] = record
    for header, data in batches:
        if not header.is_control:
            for record in read_records(data, header):
                original = records[record.offset]
                assert (record.key, record.value, record.timestamp_ms) == (
                    original.key,
                    original.value,
                    original.timestamp_ms,
                )
    whole = [(read_header(w.data), w.data) for w in history.written if w.last_offset < log.end_offset]
    stable = log.last_stable_offset
    assert _values(batches, stable) == _values(whole, stable)


def _values(batches: list[tuple[BatchHeader, bytes]], stable: int) -> dict[bytes, bytes]:
    """Newest committed value of every key below `stable`, judged by the markers in the batches themselves."""
    waiting: dict[int, list[tuple[int, bytes, bytes | None]]] = {}
    committed: list[tuple[int, bytes, bytes | None]] = []
    for header, data in batches:
        if header.base_offset >= stable and not header.is_control:
            continue
        if header.is_control:
            marker = read_control(data, header)
            ended = waiting.pop(header.producer_id, [])
            if marker is not None and marker.kind == ControlType.COMMIT:
                committed += ended
            continue
        entries = [(r.offset, r.key or b"", r.value) for r in read_records(data, header)]
        if header.is_transactional:
            waiting.setdefault(header.producer_id, []).extend(entries)
        else:
            committed += entries
    values: dict[bytes, bytes | None] = {}
    for _, key, value in sorted(committed):
        values[key] = value
    return {key: value for key, value in values.items() if value is not None}


def _judge_next_sequences(node: Node, topic: str, log: Log) -> None:
    """Each known producer goes on where it was, and a retry of its last batch is known as one."""
    for entry in list(log.producers.entries()):
        if entry.last_sequence != NO_SEQUENCE:
            batch = _batch_of(entry, entry.offset_delta + 1, (entry.last_sequence - entry.offset_delta) % 2**31)
            appended = log.append(batch, read_header(batch), 9, node.clock.wall_ms())
            assert appended.is_duplicate
            assert appended.last_offset == entry.last_offset
        batch = _batch_of(entry, 1, (entry.last_sequence + 1) % 2**31)
        end_offset = log.end_offset
        assert log.append(batch, read_header(batch), 9, node.clock.wall_ms()).base_offset == end_offset


def _batch_of(entry: Entry, count: int, sequence: int) -> bytearray:
    return build_batch(
        [b"next"] * count,
        keys=[b"k"] * count,
        base_timestamp_ms=1_700_000_000_000,
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        base_sequence=sequence,
        transactional=entry.transaction_first_offset >= 0,
    )
