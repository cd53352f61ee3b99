"""Access rules (ACLs), and what they say: Kafka's StandardAuthorizer as functions over a set of rules.

A rule belongs to a pattern: a type of resource, and a name, a prefix of names or `*`. Of the rules whose pattern covers
a resource, one that denies decides; else one that allows; else the answer is no, unless no pattern covers the resource
at all: then `allows_without_rule` decides. Super users are asked before that.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from semel.security.operations import (
    ANY_USER,
    IMPLIED_BY,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

_NO_NAME = ""


class AccessRule(NamedTuple):
    """Numbers are Kafka's codes: rules may hold some that this program does not know."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        how = {Permission.DENY: "deny", Permission.ALLOW: "allow"}.get(self.permission, "?")  # type: ignore[call-overload]
        operation = _name_of(Operation, self.operation)
        resource = _name_of(ResourceType, self.resource_type)
        name = f"{self.resource_name}*" if self.pattern_type == PatternType.PREFIXED else self.resource_name
        where = "" if self.host == WILDCARD else f" from {self.host}"
        return f"{how} {self.principal}{where} {operation} on {resource} {name}"

    def concerns(self, principal: str, host: str) -> bool:
        return self.principal in (principal, ANY_USER) and self.host in (host, WILDCARD)


class Decision(NamedTuple):
    """`why` is a sentence for whoever asks how it was decided."""

    allowed: bool
    rule: AccessRule | None
    why: str


class AccessRules:
    """Rules by their ids. Finding those for a name takes one look-up for each length of a prefix that there is."""

    def __init__(
        self, super_users: Iterable[str] = (), *, allows_without_rule: bool = False, rules: Iterable[AccessRule] = ()
    ) -> None:
        self.super_users = frozenset(super_users)
        self.allows_without_rule = allows_without_rule
        self._by_id: dict[bytes, AccessRule] = {}
        self._literal: dict[tuple[int, str], list[AccessRule]] = {}
        self._prefixed: dict[tuple[int, str], list[AccessRule]] = {}
        self._prefix_lengths: dict[int, dict[int, int]] = {}  # of each type: how many patterns have that length
        for number, rule in enumerate(rules):
            self.add(number.to_bytes(16), rule)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[AccessRule]:
        return iter(self._by_id.values())

    def add(self, rule_id: bytes, rule: AccessRule) -> None:
        self.remove(rule_id)
        rule = rule._replace(host=normal_host(rule.host))
        self._by_id[rule_id] = rule
        key = (rule.resource_type, rule.resource_name)
        if rule.pattern_type != PatternType.PREFIXED:
            self._literal.setdefault(key, []).append(rule)
            return
        if key not in self._prefixed:
            lengths = self._prefix_lengths.setdefault(rule.resource_type, {})
            lengths[len(rule.resource_name)] = lengths.get(len(rule.resource_name), 0) + 1
        self._prefixed.setdefault(key, []).append(rule)

    def remove(self, rule_id: bytes) -> None:
        rule = self._by_id.pop(rule_id, None)
        if rule is None:
            return
        key = (rule.resource_type, rule.resource_name)
        is_prefixed = rule.pattern_type == PatternType.PREFIXED
        patterns = self._prefixed if is_prefixed else self._literal
        patterns[key].remove(rule)
        if patterns[key]:
            return
        del patterns[key]
        if is_prefixed:
            lengths = self._prefix_lengths[rule.resource_type]
            lengths[len(rule.resource_name)] -= 1
            if not lengths[len(rule.resource_name)]:
                del lengths[len(rule.resource_name)]

    def covering(self, resource: ResourceType, name: str) -> Iterator[AccessRule]:
        """The rules whose pattern covers this resource, whomever they concern."""
        yield from self._literal.get((resource, name), ())
        if name != WILDCARD:
            yield from self._literal.get((resource, WILDCARD), ())
        for length in self._prefix_lengths.get(resource, ()):
            if length <= len(name):
                yield from self._prefixed.get((resource, name[:length]), ())

    def decide(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> Decision:
        if principal in self.super_users:
            return Decision(True, None, f"{principal} is one of super.users")
        wanted_to_allow = (operation, Operation.ALL, *IMPLIED_BY.get(operation, ()))
        is_covered = False
        allowing: AccessRule | None = None
        for rule in self.covering(resource, name):
            is_covered = True
            if not rule.concerns(principal, host):
                continue
            if rule.permission == Permission.DENY:
                if rule.operation in (operation, Operation.ALL):
                    return Decision(False, rule, f"by the rule: {rule}")
            elif rule.permission == Permission.ALLOW and rule.operation in wanted_to_allow:
                allowing = rule
        if allowing is not None:
            return Decision(True, allowing, f"by the rule: {allowing}")
        if is_covered:
            return Decision(False, None, "no rule allows it, and there are rules for this resource")
        what = "and allow.everyone.if.no.acl.found is " + ("true" if self.allows_without_rule else "false")
        return Decision(self.allows_without_rule, None, f"there is no rule for this resource, {what}")

    def allows_any(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        """Whether there is a name of such a resource on which the principal may do this: some rule allows it, and none
        denies all that it allows."""
        if principal in self.super_users:
            return True
        wanted: tuple[Operation, ...] = (operation, Operation.ALL)
        concerned = [rule for rule in self if rule.resource_type == resource and rule.concerns(principal, host)]
        denials = [rule for rule in concerned if rule.permission == Permission.DENY and rule.operation in wanted]
        is_prefixed = {True: set[str](), False: set[str]()}
        for rule in denials:
            is_prefixed[rule.pattern_type == PatternType.PREFIXED].add(rule.resource_name)
        denied_prefixes, denied_names = is_prefixed[True], is_prefixed[False]
        if WILDCARD in denied_names:
            return False
        wanted += IMPLIED_BY.get(operation, ())
        for rule in concerned:
            if rule.permission != Permission.ALLOW or rule.operation not in wanted:
                continue
            name = rule.resource_name
            if rule.pattern_type != PatternType.PREFIXED:
                if name == WILDCARD:
                    return True
                if name in denied_names:
                    continue
            if not any(name.startswith(prefix) for prefix in denied_prefixes):
                return True
        # Where no rule covers a name, the default decides: it is asked for one that nobody has.
        return self.allows_without_rule and self.decide(principal, host, operation, resource, _NO_NAME).allowed


def normal_host(host: str) -> str:
    """An address has several spellings; the one that connections are known by."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def matches_filter(rule: AccessRule, wanted: AccessRule) -> bool:
    """Whether a filter of Describe- or DeleteAcls means this rule. Codes of 1 stand for any, empty texts as well."""
    return (
        wanted.resource_type in (1, rule.resource_type)
        and _covers(rule, wanted.resource_name, wanted.pattern_type)
        and wanted.principal in ("", rule.principal)
        and wanted.host in ("", rule.host)
        and wanted.operation in (1, rule.operation)
        and wanted.permission in (1, rule.permission)
    )


def _covers(rule: AccessRule, name: str, pattern_type: int) -> bool:
    if pattern_type not in (PatternType.ANY, PatternType.MATCH, rule.pattern_type):
        return False
    if name in ("", rule.resource_name):
        return True
    if pattern_type != PatternType.MATCH:
        return False
    if rule.pattern_type == PatternType.PREFIXED:
        return name.startswith(rule.resource_name)
    return rule.resource_name == WILDCARD


def _name_of(kind: type[Operation] | type[ResourceType], code: int) -> str:
    try:
        return kind(code).name
    except ValueError:
        return str(code)
