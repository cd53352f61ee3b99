"""DescribeLogDirs (35), versions 1-5: the data directory, its disk, and how much each partition takes of it.

Left out: more than one directory, partitions that move between directories, and directories that take no new
partitions (`cordoned`): a node has one, and it takes them.
"""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.broker.topics import LocalLog, Topics
from semel.host.api import Disk
from semel.log.errors import Refused
from semel.log.store import LogStore
from semel.rpc.slices import Slices
from semel.wire.spec.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    LogDirDescription,
    LogDirPartition,
    LogDirTopic,
)


async def handle(
    request: DescribeLogDirsRequest,
    context: RequestContext,
    *,
    topics: Topics,
    store: LogStore,
    disk: Disk,
    slices: Slices,
) -> DescribeLogDirsResponse:
    try:
        context.authorise_cluster(Operation.DESCRIBE)
    except Refused as refusal:
        return DescribeLogDirsResponse(error_code=refusal.code)
    by_topic: dict[str, list[LogDirPartition]] = {}
    for topic, index, log in _wanted(topics, request):
        described = LogDirPartition(partition_index=index, partition_size=log.size_bytes)
        by_topic.setdefault(topic, []).append(described)
        if slices.step():
            await slices.next()
    root = store.root
    description = LogDirDescription(
        log_dir=root,
        topics=[LogDirTopic(name=name, partitions=partitions) for name, partitions in by_topic.items()],
        total_bytes=disk.total_bytes(root),
        usable_bytes=disk.free_bytes(root),
    )
    return DescribeLogDirsResponse(results=[description])


def _wanted(topics: Topics, request: DescribeLogDirsRequest) -> list[LocalLog]:
    """Those asked for that are here; the others are not mentioned, as in Kafka."""
    here = topics.logs()
    if request.topics is None:
        return here
    wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return [one for one in here if (one.topic, one.partition) in wanted]
