"""Decisions on access rules: which are created and deleted, as Kafka's controllers decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from semel.controller.image import MetadataImage
from semel.log.errors import Refused
from semel.security.access_rules import AccessRule, matches_filter
from semel.security.operations import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from semel.wire.errors import ErrorCode
from semel.wire.spec.metadata_records import AccessControlEntryRecord, MetadataRecord, RemoveAccessControlEntryRecord

_MOST_NAME_CHARACTERS = 32_767


def rule_of(record: AccessControlEntryRecord) -> AccessRule:
    return AccessRule(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def create_acls(
    image: MetadataImage, wanted: Sequence[AccessRule], new_id: Callable[[], bytes]
) -> tuple[list[MetadataRecord], list[Refused | None]]:
    """Records, and for each rule why it is refused. One that is there already is not there twice."""
    known = {rule_of(record) for record in image.acls.values()}
    records: list[MetadataRecord] = []
    results: list[Refused | None] = []
    for rule in wanted:
        try:
            _check(rule)
        except Refused as refusal:
            results.append(refusal)
            continue
        results.append(None)
        if rule not in known:
            known.add(rule)
            records.append(
                AccessControlEntryRecord(
                    id=new_id(),
                    resource_type=rule.resource_type,
                    resource_name=rule.resource_name,
                    pattern_type=rule.pattern_type,
                    principal=rule.principal,
                    host=rule.host,
                    operation=rule.operation,
                    permission_type=rule.permission,
                )
            )
    return records, results


def delete_acls(
    image: MetadataImage, filters: Sequence[AccessRule]
) -> tuple[list[MetadataRecord], list[list[AccessRule] | Refused]]:
    """Records, and for each filter what it deletes, also when another has deleted it already."""
    records: dict[bytes, MetadataRecord] = {}
    results: list[list[AccessRule] | Refused] = []
    for wanted in filters:
        try:
            check_filter(wanted)
        except Refused as refusal:
            results.append(refusal)
            continue
        deleted = []
        for record in image.acls.values():
            rule = rule_of(record)
            if matches_filter(rule, wanted):
                deleted.append(rule)
                records[record.id] = RemoveAccessControlEntryRecord(id=record.id)
        results.append(deleted)
    return list(records.values()), results


def check_filter(wanted: AccessRule) -> None:
    """Raises Refused for codes that no rule can have: they would match nothing, which nobody means."""
    if (
        wanted.resource_type not in (1, *ResourceType)
        or wanted.pattern_type not in list(PatternType)
        or wanted.operation not in (1, *Operation)
        or wanted.permission not in (1, *Permission)
    ):
        raise Refused(ErrorCode.INVALID_REQUEST, "the filter has a code that is not known here")


def _check(rule: AccessRule) -> None:
    if rule.resource_type not in list(ResourceType):
        raise _invalid(f"there are no resources of type {rule.resource_type}")
    if rule.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid("the name of a rule is literal or a prefix")
    if rule.operation not in list(Operation):
        raise _invalid(f"there is no operation {rule.operation}")
    if rule.permission not in list(Permission):
        raise _invalid("a rule allows or denies")
    if not rule.resource_name or len(rule.resource_name) > _MOST_NAME_CHARACTERS:
        raise _invalid("a rule names a resource, a prefix of names, or *")
    if rule.resource_type == ResourceType.CLUSTER and rule.resource_name != CLUSTER_NAME:
        raise _invalid(f"the cluster is called {CLUSTER_NAME}, not {rule.resource_name!r}")
    kind, colon, name = rule.principal.partition(":")
    if not (kind and colon and name):
        raise _invalid(f"a principal is of the form Type:name, such as User:alice, not {rule.principal!r}")
    if not rule.host:
        raise _invalid("a rule holds for an address, or for * which is any")
    if "/" in rule.host:
        raise _invalid(f"{rule.host!r} is a range of addresses: rules have one address, or * for any")


def _invalid(why: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, why)
