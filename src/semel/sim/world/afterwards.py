"""What is checked when a run is over: the log itself, against all that clients were told, and the files of the node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from semel.broker.broker import Broker
from semel.broker.fetch_sessions import FetchSession
from semel.log.inspection.directory_check import DirectoryCheck, partition_directories
from semel.log.inspection.findings import Findings as FileFindings
from semel.log.log import Log
from semel.records.control import ControlType, read_control
from semel.records.read import read_records
from semel.sim.disk import SimDisk
from semel.sim.history import NO_OFFSET, NO_TRANSACTION, NO_VALUE, Finish, History, Outcome, Poll, Send, pairs
from semel.sim.world.findings import Findings

NO_PRODUCER = -1


class Logged(NamedTuple):
    """A record of the log. `is_committed` by the markers alone: None while its transaction is open."""

    offset: int
    value: int
    producer_id: int
    is_committed: bool | None


def read_log(log: Log) -> list[Logged]:
    found: list[Logged] = []
    open_by_producer: dict[int, list[int]] = {}
    for segment in log.segments:
        for _, header, batch in segment.batches():
            if header.is_control:
                marker = read_control(batch, header)
                for index in open_by_producer.pop(header.producer_id, []):
                    is_commit = marker is not None and marker.kind == ControlType.COMMIT
                    found[index] = found[index]._replace(is_committed=is_commit)
                continue
            for record in read_records(batch, header):
                if header.is_transactional:
                    open_by_producer.setdefault(header.producer_id, []).append(len(found))
                value = value_of(record.value)
                is_committed = None if header.is_transactional else True
                found.append(Logged(record.offset, value, header.producer_id, is_committed))
    return found


def value_of(data: bytes | None) -> int:
    number = bytes(data or b"").split(b" ")[0]
    return int(number) if number.isdigit() else NO_VALUE


Truth = dict[tuple[str, int], list[Logged]]
"""What each partition holds."""


def check_logs(logs: Mapping[tuple[str, int], Log], history: History, topics: list[str], findings: Findings) -> Truth:
    """The log equals what was acknowledged, and what readers of committed data got is what the markers committed."""
    sends = {operation.value: operation for operation in history.operations if isinstance(operation, Send)}
    owners: dict[int, str] = {}
    truth = {key: read_log(log) for key, log in logs.items() if key[0] in topics}
    for (topic, index), logged in truth.items():
        place = f"{topic}-{index}"
        _check_acknowledged(place, logged, sends, findings)
        _check_owners(logged, sends, history, owners, findings)
        if any(record.is_committed is None for record in logged):
            findings.wrong("transaction left open", f"{place} has records of a transaction that nobody ended")
        _check_committed(place, logged, history, findings)
    return truth


def _check_acknowledged(place: str, logged: list[Logged], sends: dict[int, Send], findings: Findings) -> None:
    at = {record.offset: record for record in logged}
    seen: dict[int, int] = {}
    for record in logged:
        send = sends.get(record.value)
        if send is None or send.place != place:
            findings.wrong("log holds a stranger", f"{record.value} at {record.offset} of {place} was not sent there")
        elif send.outcome is Outcome.FAIL and send.transaction == NO_TRANSACTION:
            findings.wrong("log holds what failed", f"{record.value} at {record.offset} of {place}")
        if record.value in seen:
            text = f"{record.value} stands at {seen[record.value]} and {record.offset} of {place}"
            findings.wrong("log holds a duplicate", text)
        seen[record.value] = record.offset
    for send in sends.values():
        if send.place != place or not send.is_ok or send.offset == NO_OFFSET:
            continue
        found = at.get(send.offset)
        if found is None or found.value != send.value:
            stands = "nothing" if found is None else str(found.value)
            text = f"{send.value} was acknowledged at {send.offset} of {place}, where {stands} stands"
            findings.wrong("log lacks what was acknowledged", text)


def _check_owners(
    logged: list[Logged], sends: dict[int, Send], history: History, owners: dict[int, str], findings: Findings
) -> None:
    """A producer id belongs to one producer, or to one transactional id."""
    for record in logged:
        send = sends.get(record.value)
        if send is None or record.producer_id == NO_PRODUCER:
            continue
        client = history.clients.get(send.process)
        owner = send.process if client is None or client.transactional_id is None else client.transactional_id
        if owners.setdefault(record.producer_id, owner) != owner:
            text = f"{record.producer_id} is used by {owner} and {owners[record.producer_id]}"
            findings.wrong("producer id repeated", text)


def _check_committed(place: str, logged: list[Logged], history: History, findings: Findings) -> None:
    """Only if somebody read it all from the start to the end."""
    readers = {
        operation.process
        for operation in history.operations
        if isinstance(operation, Finish)
        and operation.is_ok
        and operation.place == place
        and operation.process.startswith("last-")
    }
    for reader in sorted(readers):
        is_committed = reader == "last-committed"
        got = [
            record
            for operation in history.operations
            if isinstance(operation, Poll) and operation.process == reader and place in operation.read
            for record in pairs(operation.read[place])
        ]
        expected = [(one.offset, one.value) for one in logged if one.is_committed or not is_committed]
        if got != expected[: len(got)] or (expected[len(got) :] and got[-1:] != expected[-1:]):
            wrong = next((pair for pair in zip(got, expected, strict=False) if pair[0] != pair[1]), None)
            text = (
                f"{reader} got {len(got)} records of {place}, the log has {len(expected)}; the first to differ: {wrong}"
            )
            findings.wrong("read differs from the log", text)


def check_idle(broker: Broker, findings: Findings) -> None:
    """All clients are gone: nobody waits any more, nothing is kept for anybody."""
    for partition in broker.topics.online():
        name = f"{partition.topic}-{partition.index}"
        if partition.waiting:
            findings.wrong("queue left over", f"{len(partition.waiting)} wait for a commit of {name}")
        left = [one for one in partition.watchers if not (isinstance(one, FetchSession) and one.is_kept)]
        if left:
            findings.wrong("queue left over", f"{len(left)} watch {name}")
        if partition.log.last_stable_offset != partition.log.high_watermark:
            findings.wrong("transaction left open", f"{name} is stable up to {partition.log.last_stable_offset} only")


def check_files(disk: SimDisk, root: str, findings: Findings) -> None:
    """As `semel log check` does, after a clean stop."""
    found = FileFindings()
    check = DirectoryCheck(disk, root, found)
    check.root_files()
    for directory in partition_directories(disk, root):
        check.partition(directory)
    for finding in found:
        if finding.is_wrong:
            findings.wrong("files wrong", f"{finding.kind.label}: {finding.where()}: {finding.what}")
