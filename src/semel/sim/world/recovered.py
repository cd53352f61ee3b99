"""Recovered state equals live state: what a node knows after a start, against what the one before knew when it died."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from semel.broker.broker import Broker
from semel.coordinator.group.state import GroupState
from semel.coordinator.shard import State, replay_batch
from semel.coordinator.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from semel.coordinator.txn.transactions import Transactions
from semel.log.log import Log
from semel.log.producers import ENTRY, Entry
from semel.sim.world.findings import Findings

TopicPartition = tuple[str, int]


class Exactness(Enum):
    """What has to be there again: what was durable; all that was written, and perhaps a last batch; exactly that."""

    DURABLE = "after a power cut"
    ALL_WRITTEN = "after a kill in a call"
    SAME = "after a kill"


def compare(dead: Broker, alive: Broker, exactness: Exactness, findings: Findings, *, may_lack: bool = False) -> None:
    """`may_lack`: the disk fails, so a log may not have been opened."""
    for key, before in dead.store.logs.items():
        if before.is_closed and exactness is not Exactness.SAME:
            continue  # its topic was being deleted
        after = alive.store.logs.get(key)
        if after is None:
            if before.high_watermark and not may_lack:
                findings.wrong("log lost", f"{_name(key)} is not there {exactness.value}")
            continue
        if _ends_as_it_must(key, before, after, exactness, findings) and before.end_offset == after.end_offset:
            _compare_producers(key, before, after, findings)
    _compare_states(dead, alive, findings)


def _ends_as_it_must(key: TopicPartition, before: Log, after: Log, exactness: Exactness, findings: Findings) -> bool:
    least = before.high_watermark if exactness is Exactness.DURABLE else before.end_offset
    is_right = after.end_offset >= least if exactness is not Exactness.SAME else after.end_offset == least
    if key[0].startswith("__cluster"):
        is_right = after.end_offset >= least  # a start writes to it
    if not is_right:
        text = (
            f"{_name(key)} ended at {before.end_offset}, durable up to {before.high_watermark}; "
            f"{exactness.value} it ends at {after.end_offset}"
        )
        findings.wrong("log shorter", text)
    if after.start_offset < before.start_offset and exactness is Exactness.SAME:
        text = f"{_name(key)} began at {before.start_offset}, and {exactness.value} at {after.start_offset}"
        findings.wrong("log start back", text)
    return is_right


def _compare_producers(key: TopicPartition, before: Log, after: Log, findings: Findings) -> None:
    then, now = producers_of(before), producers_of(after)
    for producer_id in sorted(then.keys() | now.keys()):
        if then.get(producer_id) != now.get(producer_id):
            text = f"{_name(key)}: {then.get(producer_id)} became {now.get(producer_id)}"
            findings.wrong("producer state differs", text)
            return


def producers_of(log: Log) -> dict[int, tuple[Entry, bytes]]:
    """Without the times at which producers were last seen: after a crash they count as just seen."""
    return {
        producer_id: (Entry(*ENTRY.unpack_from(row))._replace(timestamp_ms=0), row[ENTRY.size :])
        for producer_id, row in log.producers.rows().items()
    }


def _compare_states(dead: Broker, alive: Broker, findings: Findings) -> None:
    """The states of coordinators that had read all of their log, if the log is whole."""
    for shard in dead.transactions.shards.loaded():
        replayed = Transactions()
        log = _replayed(alive, (TRANSACTIONS_TOPIC, shard.partition.index), shard.partition.log, replayed)
        if log is not None and replayed.by_id != shard.state.by_id:
            told = _first_difference(shard.state.by_id, replayed.by_id)
            findings.wrong("transactions differ", f"{TRANSACTIONS_TOPIC}-{shard.partition.index}: {told}")
    for group_shard in dead.groups.shards.loaded():
        state = GroupState()
        log = _replayed(alive, (OFFSETS_TOPIC, group_shard.partition.index), group_shard.partition.log, state)
        if log is not None and state != group_shard.state:
            told = "; ".join(
                f"{name}: {_first_difference(getattr(group_shard.state, name), getattr(state, name))}"
                for name in ("classic", "consumer", "offsets", "pending")
                if getattr(group_shard.state, name) != getattr(state, name)
            )
            findings.wrong("groups differ", f"{OFFSETS_TOPIC}-{group_shard.partition.index}: {told}")


def _replayed(alive: Broker, key: TopicPartition, before: Log, state: State) -> Log | None:
    log = alive.store.logs.get(key)
    if log is None or log.end_offset != before.end_offset:
        return None
    for segment in log.segments:
        for _, header, batch in segment.batches():
            replay_batch(state, header, batch)
    return log


def _first_difference(before: Mapping[Any, object], after: Mapping[Any, object]) -> str:
    for name in sorted(before.keys() | after.keys(), key=str):
        if before.get(name) != after.get(name):
            return f"{name!r} was {before.get(name)} and is {after.get(name)}"
    return "in their order"


def _name(key: TopicPartition) -> str:
    return f"{key[0]}-{key[1]}"
