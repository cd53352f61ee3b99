"""`semel.Admin`: the parts of the admin behind one face, and its life."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Unpack

from semel.client.admin.acls import AclsPart
from semel.client.admin.admin_requests import AdminRequests
from semel.client.admin.cluster_info import ClusterPart
from semel.client.admin.configs import ConfigsPart
from semel.client.admin.group_offsets import GroupOffsetsPart
from semel.client.admin.log_reading import LogReadingPart
from semel.client.admin.producers import ProducersPart
from semel.client.admin.quotas import QuotasPart
from semel.client.admin.records_deletion import RecordsPart
from semel.client.admin.replicas import ReplicasPart
from semel.client.admin.scram import ScramPart
from semel.client.admin.settings import AdminSettings
from semel.client.admin.topics import TopicsPart
from semel.client.cluster import Cluster
from semel.client.errors import Closed, IllegalState
from semel.client.settings import load
from semel.host.api import Host

if TYPE_CHECKING:
    from semel.client.option_types import AdminOptions


class Admin(
    TopicsPart,
    ConfigsPart,
    GroupOffsetsPart,
    RecordsPart,
    LogReadingPart,
    ProducersPart,
    ClusterPart,
    ReplicasPart,
    ScramPart,
    QuotasPart,
    AclsPart,
):
    """Administers a cluster.

        async with semel.Admin(bootstrap_servers="localhost:9092") as admin:
            await admin.create_topics(NewTopic("payments", partitions=3))
            print(await admin.describe_topics("payments"))

    Calls take one item or many. They return a mapping from item to result where there is something to return, and raise
    when an item failed: its own error if it is the only one asked for, else `AdminErrors`, which names all that failed
    and keeps the results of the others. What a broker asks to be tried again is tried again for
    `default_api_timeout_ms`; `asyncio.timeout` around a call makes that shorter. Where a broker does not know a call,
    `UnsupportedByBroker` is raised.
    """

    def __init__(self, *, host: Host | None = None, **settings: Unpack[AdminOptions]) -> None:
        self._settings = load(AdminSettings, settings)
        self._given_host = host
        self._own_host: Host | None = None

    async def start(self) -> None:
        """Finds the cluster. Raises Disconnected when nobody answers within `bootstrap_timeout_ms`."""
        if self._is_closed:
            raise Closed("the admin was closed: make a new one")
        if self._requests is not None:
            raise IllegalState("the admin was started already")
        host = self._given_host
        if host is None:
            from semel.host.real import real_host

            host = self._own_host = real_host()
        self._requests = AdminRequests(Cluster(host, self._settings), self._settings)
        try:
            await self._requests.cluster.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Ends all connections; calls that still wait fail with Closed."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._requests is not None:
            await self._requests.cluster.close()
        if self._own_host is not None:
            self._own_host.close()

    stop = close

    async def __aenter__(self) -> Admin:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
