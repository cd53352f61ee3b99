"""Who may do what. Every handler asks here before it acts; without rules, everyone may do everything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from semel.controller.acls import rule_of
from semel.controller.image import MetadataImage
from semel.security.access_rules import AccessRules
from semel.security.operations import CLUSTER_NAME as CLUSTER_NAME
from semel.security.operations import OPERATIONS as OPERATIONS
from semel.security.operations import Operation as Operation
from semel.security.operations import ResourceType as ResourceType
from semel.wire.spec.metadata_records import (
    AccessControlEntryRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
)

# Answers that are kept until a rule changes.
_MOST_ANSWERS = 10_000


class Authoriser(Protocol):
    def authorise(
        self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str | None
    ) -> bool:
        """`host` is the address that the principal comes from. Without a name: whether there is any such resource on
        which it may do this."""


class AllowAll:
    """The authoriser of a node without rules."""

    def authorise(
        self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str | None
    ) -> bool:
        return True


class RulesAuthoriser:
    """Kafka's rules, as they are committed in the metadata. Changes count at once: the node raises its generation."""

    def __init__(self, super_users: Iterable[str], *, allows_without_rule: bool) -> None:
        self._super_users = frozenset(super_users)
        self._allows_without_rule = allows_without_rule
        self.rules = self._no_rules()
        self._answers: dict[tuple[str, str, Operation, ResourceType, str | None], bool] = {}

    def _no_rules(self) -> AccessRules:
        return AccessRules(self._super_users, allows_without_rule=self._allows_without_rule)

    def authorise(
        self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str | None
    ) -> bool:
        key = (principal, host, operation, resource, name)
        answer = self._answers.get(key)
        if answer is None:
            if name is None:
                answer = self.rules.allows_any(principal, host, operation, resource)
            else:
                answer = self.rules.decide(principal, host, operation, resource, name).allowed
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            self._answers[key] = answer
        return answer

    def reload(self, image: MetadataImage) -> None:
        """The rules of another image."""
        self.rules = self._no_rules()
        for record in image.acls.values():
            self.rules.add(record.id, rule_of(record))
        self._answers.clear()

    def apply(self, records: Sequence[MetadataRecord]) -> bool:
        """Records that are committed now; whether any of them changed a rule."""
        is_changed = False
        for record in records:
            if isinstance(record, AccessControlEntryRecord):
                self.rules.add(record.id, rule_of(record))
            elif isinstance(record, RemoveAccessControlEntryRecord):
                self.rules.remove(record.id)
            else:
                continue
            is_changed = True
        if is_changed:
            self._answers.clear()
        return is_changed


def authorised_bits(authoriser: Authoriser, principal: str, host: str, resource: ResourceType, name: str) -> int:
    """The operations that are allowed, as the bit field that Metadata and the Describe APIs carry."""
    return sum(
        1 << operation
        for operation in OPERATIONS[resource]
        if authoriser.authorise(principal, host, operation, resource, name)
    )
