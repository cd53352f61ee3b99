"""Has the topics of the coordinators made when somebody first needs one."""

from __future__ import annotations

from semel.broker.cluster_view import ClusterView
from semel.broker.controller_channel import ControllerChannel
from semel.controller.controller import NewTopic
from semel.coordinator.topic_names import OFFSETS_TOPIC
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.primitives import coordinator_partition


class InternalTopics:
    def __init__(self, cluster: ClusterView, controller: ControllerChannel) -> None:
        self._cluster = cluster
        self._controller = controller

    async def ensure(self, name: str) -> None:
        """Returns when the topic can be used; Refused when it cannot be made."""
        if name in self._cluster.image.topics:
            return
        (made,) = await self._controller.create_topics([NewTopic(name)])
        # Somebody else may have created it at this moment: then it is there now.
        if isinstance(made, Refused) and made.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} cannot be created: {made.text}") from made

    async def offsets_partition(self, group_id: str) -> tuple[str, int]:
        """The partition that holds the offsets of a group."""
        await self.ensure(OFFSETS_TOPIC)
        return OFFSETS_TOPIC, coordinator_partition(group_id, self._cluster.partition_count(OFFSETS_TOPIC))
