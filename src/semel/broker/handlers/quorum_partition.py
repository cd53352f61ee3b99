"""The one partition that all requests about the metadata log are about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from semel.log.errors import Refused
from semel.quorum.metadata_topic import PARTITION, TOPIC
from semel.quorum.owner import LogReplica
from semel.wire.errors import ErrorCode


class _Partition(Protocol):
    partition_index: int


P_co = TypeVar("P_co", bound=_Partition, covariant=True)


class _Topic(Protocol[P_co]):
    topic_name: str

    @property
    def partitions(self) -> Sequence[P_co]: ...


E = TypeVar("E")


def leader_endpoints(replica: LogReplica, listener: str, form: Callable[..., E]) -> list[E]:
    """Where the leader is, by a listener such as the request came in on."""
    found = replica.leader_endpoint(listener)
    return [] if found is None else [form(node_id=found[0], host=found[1].host, port=found[1].port)]


def check_cluster(asked: str | None, cluster_id: str) -> None:
    if asked is not None and asked != cluster_id:
        raise Refused(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {cluster_id}")


def the_partition(topics: Sequence[_Topic[P_co]]) -> P_co:
    if len(topics) == 1 and topics[0].topic_name == TOPIC and len(topics[0].partitions) == 1:
        partition = topics[0].partitions[0]
        if partition.partition_index == PARTITION:
            return partition
    raise Refused(ErrorCode.INVALID_REQUEST, f"this is about partition 0 of {TOPIC}, and nothing else")
