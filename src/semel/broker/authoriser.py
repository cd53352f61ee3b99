"""Who may do what. Every handler asks here before it acts; until rules exist, everyone may do everything."""

from enum import IntEnum
from typing import Protocol


class Operation(IntEnum):
    """Kafka's codes."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    """Kafka's codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


CLUSTER_NAME = "kafka-cluster"

OPERATIONS: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}


class Authoriser(Protocol):
    def authorise(self, principal: str, operation: Operation, resource: ResourceType, name: str) -> bool: ...


class AllowAll:
    """The authoriser of a node without rules."""

    def authorise(self, principal: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        return True


def authorised_bits(authoriser: Authoriser, principal: str, resource: ResourceType, name: str) -> int:
    """The operations that are allowed, as the bit field that Metadata and the Describe APIs carry."""
    return sum(
        1 << operation
        for operation in OPERATIONS[resource]
        if authoriser.authorise(principal, operation, resource, name)
    )
