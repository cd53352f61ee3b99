"""The topics of the cluster, as far as groups need to know them."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Protocol


class ClusterTopic(Protocol):
    @property
    def topic_id(self) -> bytes: ...

    @property
    def partitions(self) -> Sized: ...


class ClusterImage(Protocol):
    """Committed metadata: topics by name, names by id, and what was set for a group."""

    @property
    def topics(self) -> Mapping[str, ClusterTopic]: ...

    @property
    def names(self) -> Mapping[bytes, str]: ...

    def group_settings(self, group_id: str) -> Mapping[str, str]: ...


class ClusterTopics(Protocol):
    @property
    def image(self) -> ClusterImage: ...

    @property
    def version(self) -> int:
        """Grows whenever a topic comes, goes or gets more partitions."""
