"""`semel log check DIR --against OTHER`: the same partitions of two nodes, beside each other."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from semel.cli.failures import Exit, NotFound, WrongCall
from semel.cli.log_findings import show_findings
from semel.cli.output import Output, count_text
from semel.log.checkpoints import LOG_STARTS, TopicPartition
from semel.log.inspection.directory_check import LOCK, is_root, log_bytes, partition_directories
from semel.log.inspection.files import Files, is_locked, partition_of
from semel.log.inspection.findings import Findings, Kind
from semel.log.inspection.metadata import METADATA_TOPIC, Topics, read_topics
from semel.log.inspection.replicas import Compared, compare, open_replica
from semel.log.log import IDENTITY_FILE

HIGH_WATERMARKS = "replication-offset-checkpoint"
_ALWAYS_COMPACTED = ("__consumer_offsets", "__transaction_state")


class _Side(NamedTuple):
    """One of the two nodes."""

    root: str | None
    partitions: dict[TopicPartition, str]
    starts: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]
    topics: Topics | None
    is_running: bool


def check_against(output: Output, files: Files, path: str, other: str) -> int:
    ours, theirs = _side(files, path), _side(files, other)
    if len(ours.partitions) == len(theirs.partitions) == 1 and ours.partitions.keys() != theirs.partitions.keys():
        names = " and ".join(f"{topic}-{number}" for topic, number in (*ours.partitions, *theirs.partitions))
        raise WrongCall(f"{names} are not the same partition: there is nothing to compare")
    for side in (ours, theirs):
        if side.is_running:
            output.note(f"a node is at work in {side.root}: what it writes meanwhile is not compared")
    findings = Findings()
    common = sorted(ours.partitions.keys() & theirs.partitions.keys())
    total = sum(log_bytes(files, side.partitions[key]) for key in common for side in (ours, theirs))
    with output.progress("comparing", total, "bytes") as bar:
        compared = _compare_all(files, ours, theirs, findings, bar.advance)
    shown = f"{count_text(len(common), 'partition')}, {count_text(compared, 'offset')}, {total:,} bytes"
    show_findings(output, findings, path, shown, is_running=ours.is_running or theirs.is_running)
    return Exit.FAILED if findings.is_wrong else Exit.OK


def compare_directories(files: Files, path: str, other: str, findings: Findings) -> int:
    """The same for a program, on nodes that are stopped: adds what it finds, and returns how many offsets it has
    compared."""
    return _compare_all(files, _side(files, path), _side(files, other), findings, lambda _: None)


def _compare_all(files: Files, ours: _Side, theirs: _Side, findings: Findings, progress: Callable[[int], None]) -> int:
    common, compared = sorted(ours.partitions.keys() & theirs.partitions.keys()), 0
    for key in common:
        found = _compare(files, key, ours, theirs, findings, progress)
        compared += 0 if found is None else found.limit - found.start
    for side in (ours, theirs):
        for key in sorted(side.partitions.keys() - set(common)):
            findings.add(Kind.NO_REPLICA, side.partitions[key], "it is here only")
    return compared


def _side(files: Files, path: str) -> _Side:
    path = path.rstrip("/") or "/"
    if not files.is_dir(path):
        raise NotFound(f"{path} is not a directory")
    inside = partition_directories(files, path)
    root: str | None = path
    if not inside and not is_root(files, path):
        if not any(name.endswith(".log") for name in files.list_dir(path)):
            raise WrongCall(f"{path} is neither a data directory nor that of a partition: it holds no log")
        inside, root = [path], os.path.dirname(os.path.abspath(path))
        if not is_root(files, root):
            root = None
    partitions = {key: directory for directory in inside if (key := partition_of(os.path.abspath(directory)))}
    return _Side(
        root,
        partitions,
        {} if root is None else _checkpoint(files, f"{root}/{LOG_STARTS}"),
        {} if root is None else _checkpoint(files, f"{root}/{HIGH_WATERMARKS}"),
        None if root is None else _topics(files, root),
        root is not None and is_locked(f"{root}/{LOCK}"),
    )


def _checkpoint(files: Files, path: str) -> dict[TopicPartition, int]:
    """What cannot be read says nothing: a check of that directory alone tells of it."""
    try:
        rows = [line.split() for line in files.read_file(path).decode().splitlines()[2:]]
        return {(topic, int(number)): int(offset) for topic, number, offset in rows}
    except (FileNotFoundError, ValueError):
        return {}


def _topics(files: Files, root: str) -> Topics | None:
    try:
        return read_topics(files, root)
    except FileNotFoundError:
        return None  # a running node has removed what it has a snapshot of


def _compare(
    files: Files, key: TopicPartition, ours: _Side, theirs: _Side, findings: Findings, progress: Callable[[int], None]
) -> Compared | None:
    mine, other = ours.partitions[key], theirs.partitions[key]
    ids = [_identity(files, directory) for directory in (mine, other)]
    if ids[0] is not None and ids[1] is not None and ids[0] != ids[1]:
        findings.add(Kind.OTHER_TOPIC, mine, f"the topic's id is {ids[0]} here and {ids[1]} in {other}")
        return None
    try:
        one, two = (
            open_replica(
                files,
                side.partitions[key],
                start=side.starts.get(key, 0),
                # Of the metadata the quorum knows, and nobody writes it down.
                high_watermark=None if key[0] == METADATA_TOPIC else side.high_watermarks.get(key),
            )
            for side in (ours, theirs)
        )
        return compare(one, two, findings, is_compacted=_is_compacted(key[0], ours, theirs), progress=progress)
    except FileNotFoundError as error:
        if not ours.is_running and not theirs.is_running:
            raise
        findings.add(Kind.VANISHED, str(error.filename), "it was removed meanwhile")
        return None


def _is_compacted(topic: str, ours: _Side, theirs: _Side) -> bool:
    if topic in _ALWAYS_COMPACTED:
        return True
    return any(side.topics is not None and side.topics.compacts(topic) for side in (ours, theirs))


def _identity(files: Files, directory: str) -> str | None:
    try:
        lines = files.read_file(f"{directory}/{IDENTITY_FILE}").decode(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    found = [line.partition(": ")[2] for line in lines if line.startswith("topic_id: ")]
    return found[0] if found else None
