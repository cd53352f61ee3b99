"""Where markers go on a cluster of one: into the partitions of this node, or into the shard that owns the partition."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from semel.coordinator.topic_names import OFFSETS_TOPIC
from semel.log.types import Epoch, ProducerId
from semel.records.control import ControlType

if TYPE_CHECKING:
    from semel.broker.broker import Broker


class LocalMarkers:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def write_marker(
        self,
        partition: tuple[str, int],
        kind: ControlType,
        producer_id: ProducerId,
        epoch: Epoch,
        coordinator_epoch: Epoch,
        bumps_epoch: bool,
    ) -> asyncio.Future[None] | None:
        """Writes it; raises Refused. None when it is durable, otherwise a future of it."""
        topic, index = partition
        target = self._broker.topics.partition(topic, index)
        if topic == OFFSETS_TOPIC:
            # The group coordinator applies or drops the offsets of the transaction with the marker.
            shard = self._broker.groups.shards.at(index)
            offset = shard.append_marker(kind, producer_id, epoch, coordinator_epoch, bumps_epoch=bumps_epoch)
        else:
            offset = target.append_marker(
                kind, producer_id, epoch, coordinator_epoch, bumps_epoch=bumps_epoch
            ).last_offset
        return target.when_committed(offset)
