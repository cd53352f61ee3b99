"""What the admin takes and gives for SCRAM credentials, access rules and quotas. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from semel.client.admin.values import Numbered

# -- SCRAM


class ScramMechanism(Numbered):
    UNKNOWN = 0
    SHA_256 = 1
    SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        return {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}.get(int(self), "unknown")


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A password to set. Only what it is salted to is sent; a new salt is drawn unless one is given."""

    user: str
    password: str
    mechanism: ScramMechanism = ScramMechanism.SHA_512
    iterations: int = 8192
    salt: bytes | None = None

    def __repr__(self) -> str:
        return f"ScramCredential({self.user!r}, {self.mechanism.sasl_name}, {self.iterations} iterations)"


class ScramDeletion(NamedTuple):
    user: str
    mechanism: ScramMechanism


# -- access rules


class AclResourceType(Numbered):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPatternType(Numbered):
    """How the name of a rule is meant. ANY and MATCH are for filters: any pattern, or any that covers the name."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(Numbered):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(Numbered):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclBinding(NamedTuple):
    """A rule: who (`User:name`), from where (`*`: anywhere), may or may not do what with which resource."""

    resource_type: AclResourceType
    resource_name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    pattern_type: AclPatternType = AclPatternType.LITERAL
    host: str = "*"


class AclFilter(NamedTuple):
    """Which rules are meant: None and ANY fit everything."""

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    pattern_type: AclPatternType = AclPatternType.ANY
    host: str | None = None


# -- quotas

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"


class QuotaEntity(NamedTuple):
    """Whom a quota limits: a user, a client id, both together, or an address. None: is not part of it; an empty text:
    the default for all without a quota of their own."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


class QuotaMatch(IntEnum):
    EXACT = 0
    DEFAULT = 1
    ANY = 2


Quotas = Mapping[str, float]
"""By Kafka's names: producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate, ..."""
