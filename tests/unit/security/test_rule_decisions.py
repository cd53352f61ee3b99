"""Kafka's rules of access, one by one, and against a naive reading of them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semel.security.access_rules import AccessRule, AccessRules, matches_filter
from semel.security.operations import IMPLIED_BY, Operation, PatternType, Permission, ResourceType

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
ALICE, HERE = "User:alice", "10.0.0.1"


def rule(
    permission: Permission = ALLOW,
    operation: Operation = READ,
    name: str = "t",
    pattern: PatternType = LITERAL,
    principal: str = ALICE,
    host: str = "*",
    resource: ResourceType = TOPIC,
) -> AccessRule:
    return AccessRule(resource, name, pattern, principal, host, operation, permission)


def allows(
    *rules: AccessRule,
    operation: Operation = READ,
    name: str = "t",
    principal: str = ALICE,
    host: str = HERE,
    default: bool = False,
    super_users: tuple[str, ...] = (),
) -> bool:
    held = AccessRules(super_users, allows_without_rule=default, rules=rules)
    return held.decide(principal, host, operation, TOPIC, name).allowed


def test_without_a_rule_the_default_decides() -> None:
    assert not allows()
    assert allows(default=True)


def test_a_resource_with_a_rule_for_others_is_closed_whatever_the_default() -> None:
    assert not allows(rule(principal="User:bob"), default=True)
    assert not allows(rule(operation=WRITE), default=True)
    assert not allows(rule(host="10.0.0.2"), default=True)
    assert allows(rule(name="other", principal="User:bob"), default=True)
    assert allows(rule(resource=GROUP, principal="User:bob"), default=True)


@pytest.mark.parametrize("order", [1, -1])
def test_a_denial_counts_before_any_permission(order: int) -> None:
    assert not allows(*(rule(ALLOW), rule(DENY))[::order])
    assert not allows(*(rule(ALLOW), rule(DENY, name="*", principal="User:*", operation=Operation.ALL))[::order])
    assert allows(*(rule(ALLOW), rule(DENY, principal="User:bob"))[::order])


@pytest.mark.parametrize(
    ("one", "is_allowed"),
    [
        (rule(), True),
        (rule(name="*"), True),
        (rule(name="orders", pattern=PREFIXED), False),
        (rule(name="t", pattern=PREFIXED), True),
        (rule(name="tt"), False),
        (rule(name="*", pattern=PREFIXED), False),  # a prefix is meant as it stands
        (rule(principal="User:*"), True),
        (rule(principal="Group:alice"), False),
        (rule(principal="User:Alice"), False),
        (rule(host=HERE), True),
        (rule(host="10.0.0.10"), False),
        (rule(operation=Operation.ALL), True),
        (rule(operation=DESCRIBE), False),
    ],
)
def test_what_a_rule_covers(one: AccessRule, is_allowed: bool) -> None:
    assert allows(one) is is_allowed


def test_an_address_has_several_spellings() -> None:
    assert allows(rule(host="2001:DB8:0::1"), host="2001:db8::1")


@pytest.mark.parametrize("operation", list(Operation))
def test_what_allows_to_describe(operation: Operation) -> None:
    implied = operation in (READ, WRITE, Operation.DELETE, Operation.ALTER, DESCRIBE, Operation.ALL)
    assert allows(rule(operation=operation), operation=DESCRIBE) is implied
    configs = operation in (Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS, Operation.ALL)
    assert allows(rule(operation=operation), operation=Operation.DESCRIBE_CONFIGS) is configs


def test_to_deny_reading_does_not_deny_describing() -> None:
    assert allows(rule(DENY, READ), rule(ALLOW, WRITE), operation=DESCRIBE)
    assert not allows(rule(DENY, READ), rule(ALLOW, WRITE), operation=READ)


def test_super_users_may_do_what_is_denied() -> None:
    assert allows(rule(DENY), super_users=(ALICE,))
    assert not allows(rule(DENY), super_users=("User:bob",))


def test_a_decision_names_its_rule() -> None:
    held = AccessRules(rules=[rule(DENY, WRITE, "pay", PREFIXED, host="10.0.0.1")])
    decision = held.decide(ALICE, HERE, WRITE, TOPIC, "payments")
    assert not decision.allowed
    assert decision.why == "by the rule: deny User:alice from 10.0.0.1 WRITE on TOPIC pay*"
    assert "there is no rule" in held.decide(ALICE, HERE, WRITE, TOPIC, "t").why


def test_a_rule_that_is_removed_counts_no_more() -> None:
    held = AccessRules()
    held.add(b"1", rule(name="t", pattern=PREFIXED))
    held.add(b"2", rule(name="t", pattern=PREFIXED, operation=WRITE))
    held.add(b"2", rule(name="t", pattern=PREFIXED, operation=WRITE))  # the same record again
    held.remove(b"1")
    held.remove(b"3")
    assert not held.decide(ALICE, HERE, READ, TOPIC, "tt").allowed
    assert held.decide(ALICE, HERE, WRITE, TOPIC, "tt").allowed
    held.remove(b"2")
    assert list(held.covering(TOPIC, "tt")) == []
    assert len(held) == 0


ANY_CASES = [
    ([rule(ALLOW, WRITE)], True),
    ([rule(ALLOW, READ)], False),
    ([rule(ALLOW, WRITE, "p", PREFIXED)], True),
    ([rule(ALLOW, WRITE), rule(DENY, WRITE)], False),
    ([rule(ALLOW, WRITE), rule(DENY, WRITE, "u")], True),
    ([rule(ALLOW, WRITE, "team", PREFIXED), rule(DENY, WRITE, "te", PREFIXED)], False),
    ([rule(ALLOW, WRITE, "te", PREFIXED), rule(DENY, WRITE, "team", PREFIXED)], True),
    ([rule(ALLOW, WRITE, "*"), rule(DENY, WRITE, "*")], False),
    ([rule(ALLOW, WRITE, "*"), rule(DENY, Operation.ALL, "te", PREFIXED)], True),
    ([rule(ALLOW, WRITE), rule(DENY, WRITE, principal="User:bob")], True),
    ([rule(ALLOW, WRITE, resource=GROUP)], False),
    ([rule(ALLOW, WRITE, host="10.9.9.9")], False),
    ([], False),
]


@pytest.mark.parametrize(("rules", "is_allowed"), ANY_CASES)
def test_whether_there_is_any_topic_to_write_to(rules: list[AccessRule], is_allowed: bool) -> None:
    assert AccessRules(rules=rules).allows_any(ALICE, HERE, WRITE, TOPIC) is is_allowed


def test_where_the_default_allows_there_is_always_one_unless_all_are_denied() -> None:
    assert AccessRules(allows_without_rule=True).allows_any(ALICE, HERE, WRITE, TOPIC)
    closed = AccessRules(allows_without_rule=True, rules=[rule(DENY, WRITE, "*")])
    assert not closed.allows_any(ALICE, HERE, WRITE, TOPIC)


RULES = st.builds(
    AccessRule,
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(["a", "ab", "abc", "b", "*"]),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:a", "User:b", "User:*"]),
    st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
    st.sampled_from([READ, WRITE, DESCRIBE, Operation.ALL]),
    st.sampled_from([ALLOW, DENY]),
)


def naive(rules: list[AccessRule], principal: str, host: str, operation: Operation, name: str, default: bool) -> bool:
    covering = [
        one
        for one in rules
        if one.resource_type == TOPIC
        and (name.startswith(one.resource_name) if one.pattern_type == PREFIXED else one.resource_name in (name, "*"))
    ]
    mine = [one for one in covering if one.principal in (principal, "User:*") and one.host in (host, "*")]
    if any(one.permission == DENY and one.operation in (operation, Operation.ALL) for one in mine):
        return False
    enough = (operation, Operation.ALL, *IMPLIED_BY.get(operation, ()))
    if any(one.permission == ALLOW and one.operation in enough for one in mine):
        return True
    return default and not covering


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(RULES, max_size=8), st.lists(st.integers(0, 7)), st.booleans())
def test_it_decides_as_the_rules_read(rules: list[AccessRule], removed: list[int], default: bool) -> None:
    held = AccessRules(allows_without_rule=default, rules=rules)
    for number in removed:
        held.remove(number.to_bytes(16))
    left = [one for number, one in enumerate(rules) if number not in removed]
    for principal, host, operation, name in itertools.product(
        ["User:a", "User:c"], ["10.0.0.1", "10.0.0.3"], [READ, DESCRIBE], ["a", "abd", "c"]
    ):
        told = held.decide(principal, host, operation, TOPIC, name)
        assert told.allowed is naive(left, principal, host, operation, name, default)


def wanted(
    name: str = "", pattern: PatternType = PatternType.ANY, principal: str = "", resource: int = 1
) -> AccessRule:
    return AccessRule(resource, name, pattern, principal, "", 1, 1)


@pytest.mark.parametrize(
    ("one", "wish", "is_meant"),
    [
        (rule(), wanted(), True),
        (rule(), wanted("t"), True),
        (rule(), wanted("u"), False),
        (rule(), wanted("t", PREFIXED), False),
        (rule(name="te", pattern=PREFIXED), wanted("test", PatternType.MATCH), True),
        (rule(name="te", pattern=PREFIXED), wanted("test", PatternType.ANY), False),
        (rule(name="te", pattern=PREFIXED), wanted("te", PatternType.ANY), True),
        (rule(name="*"), wanted("test", PatternType.MATCH), True),
        (rule(name="*"), wanted("test", LITERAL), False),
        (rule(), wanted(principal="User:bob"), False),
        (rule(), wanted(resource=GROUP), False),
    ],
)
def test_which_rules_a_filter_means(one: AccessRule, wish: AccessRule, is_meant: bool) -> None:
    assert matches_filter(one, wish) is is_meant
