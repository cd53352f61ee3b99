"""What a handler knows of a request besides its body: who asks, over which connection, in which version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from semel.broker.authoriser import CLUSTER_NAME, Authoriser, Operation, ResourceType, authorised_bits
from semel.config import ListenerKind
from semel.log.errors import Refused
from semel.rpc.served import ServedConnection
from semel.wire.errors import ErrorCode

_DENIED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def authorise(authoriser: Authoriser, asker: Asker, operation: Operation, resource: ResourceType, name: str) -> None:
    """Raises Refused when whoever asks may not."""
    if not authoriser.authorise(asker.principal, asker.host, operation, resource, name):
        what = f"{resource.name.lower()} {name!r}"
        raise Refused(_DENIED[resource], f"{asker.principal} may not {operation.name} the {what}")


class Asker(Protocol):
    """A connection, or whoever has sent a request on: who it is, and from which address."""

    @property
    def principal(self) -> str: ...

    @property
    def host(self) -> str: ...


class RequestContext:
    """One per request."""

    __slots__ = ("_authoriser", "client_id", "connection", "is_long", "version")

    def __init__(
        self,
        connection: ServedConnection,
        version: int,
        client_id: str | None,
        authoriser: Authoriser,
        *,
        is_long: bool = False,
    ) -> None:
        self.connection = connection
        self.version = version
        self.client_id = client_id
        self.is_long = is_long  # it has many entries, and its handler may wait between them
        self._authoriser = authoriser

    @property
    def listener(self) -> str:
        """By which listener the request came: addresses in its answer are those of this one."""
        return self.connection.listener

    @property
    def principal(self) -> str:
        return self.connection.principal

    def allows(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """For where a second permission counts as well, or the answer only tells less; otherwise use `authorise`."""
        connection = self.connection
        return self._authoriser.authorise(connection.principal, connection.host, operation, resource, name)

    def allows_any(self, operation: Operation, resource: ResourceType) -> bool:
        """Whether there is any such resource on which this principal may do this."""
        connection = self.connection
        return self._authoriser.authorise(connection.principal, connection.host, operation, resource, None)

    def authorise(self, operation: Operation, resource: ResourceType, name: str) -> None:
        """Raises Refused when this principal may not."""
        authorise(self._authoriser, self.connection, operation, resource, name)

    def authorise_topic(self, operation: Operation, name: str) -> None:
        self.authorise(operation, ResourceType.TOPIC, name)

    def authorise_cluster(self, operation: Operation) -> None:
        self.authorise(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def authorise_node(self, listeners: Mapping[str, ListenerKind]) -> None:
        """For what nodes say to each other: it has to come by a listener for brokers, from who may act as one."""
        if ListenerKind.BROKERS not in listeners[self.listener]:
            raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"nodes do not call each other by {self.listener}")
        self.authorise_cluster(Operation.CLUSTER_ACTION)

    def authorised_bits(self, resource: ResourceType, name: str) -> int:
        """What this principal may do, as the answers of the Describe APIs carry it."""
        connection = self.connection
        return authorised_bits(self._authoriser, connection.principal, connection.host, resource, name)
