"""`semel acl`: who may do what. A rule names a principal, an operation and a resource, and allows or denies."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from semel.cli.connection import add_connection_arguments, admin_for, run
from semel.cli.failures import Exit, WrongCall
from semel.cli.output import Output, add_output_arguments, count_text

if TYPE_CHECKING:
    from semel.client.admin.security_values import AclBinding
    from semel.security.access_rules import AccessRule
    from semel.security.operations import Operation, ResourceType

_KINDS = {
    "topic": "TOPIC",
    "group": "GROUP",
    "cluster": "CLUSTER",
    "txn": "TRANSACTIONAL_ID",
    "transactional-id": "TRANSACTIONAL_ID",
    "token": "DELEGATION_TOKEN",
    "user": "USER",
}
_CLUSTER = "kafka-cluster"
_FORM = "topic:NAME, group:NAME, txn:NAME, user:NAME or cluster; a name that ends with * is a prefix, * alone is any"
_EXAMPLES = """NAME is a user, or a principal such as User:CN=app. RESOURCE is topic:NAME, group:NAME, txn:NAME or
cluster; `topic:pay*` is every topic whose name begins with pay.

examples:
  semel acl allow alice read topic:payments
  semel acl allow alice read group:reports
  semel acl deny mallory all topic:* --host 10.0.0.7
  semel acl explain alice write topic:payments
  semel acl list --principal alice
  semel acl remove --principal alice
"""
_WHO = "a user, or a principal with its type, such as User:CN=app"

Work = Callable[[argparse.Namespace, Output], Coroutine[Any, Any, int]]


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.epilog = _EXAMPLES
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, verb in (("allow", "allow"), ("deny", "deny")):
        deciding = actions.add_parser(
            name,
            help=f"{verb} an operation",
            description=f"Make a rule to {verb} an operation on a resource.",
            epilog=f"example:\n  semel acl {name} alice read topic:payments\n",
        )
        _add_question(deciding)
        deciding.add_argument("--host", default="*", metavar="ADDRESS", help="from this address alone (default any)")
        _finish(deciding, _decide)

    listing = actions.add_parser(
        "list", help="list rules", description="List rules.", epilog="example:\n  semel acl list --principal alice\n"
    )
    _add_filter(listing)
    _finish(listing, _list)

    removing = actions.add_parser(
        "remove",
        help="remove rules",
        description="Remove the rules that fit what is given: at least one of the options is needed.",
        epilog="example:\n  semel acl remove --principal alice --resource topic:payments\n",
    )
    _add_filter(removing)
    _finish(removing, _remove)

    explaining = actions.add_parser(
        "explain",
        help="say whether somebody may do something, and by which rule",
        description="Say whether somebody may do something, and by which rule. Super users are not known here.",
        epilog="example:\n  semel acl explain alice write topic:payments\n\nexit codes: 0 allowed, 1 denied.\n",
    )
    _add_question(explaining)
    explaining.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="where they come from")
    _finish(explaining, _explain)


def _add_question(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=_WHO)
    parser.add_argument("operation", metavar="OPERATION", help="read, write, create, describe, alter, delete, all, ...")
    parser.add_argument("resource", metavar="RESOURCE", help=_FORM)


def _add_filter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--principal", metavar="NAME", help=_WHO)
    parser.add_argument("--resource", metavar="RESOURCE", help=_FORM)


def _finish(parser: argparse.ArgumentParser, work: Work) -> None:
    add_output_arguments(parser)
    add_connection_arguments(parser)
    parser.set_defaults(run=lambda options: run(work(options, Output.of(options))))


# -- what the words mean


def _principal(name: str) -> str:
    return name if ":" in name else f"User:{name}"


def _operation(text: str) -> Operation:
    from semel.security.operations import Operation

    try:
        return Operation[text.replace("-", "_").upper()]
    except KeyError:
        known = ", ".join(one.name.lower().replace("_", "-") for one in Operation)
        raise WrongCall(f"there is no operation {text!r}; there are {known}") from None


def _resource(text: str) -> tuple[ResourceType, str, bool]:
    """Its type and name, and whether that is a prefix."""
    from semel.security.operations import ResourceType

    kind, colon, name = text.partition(":")
    if kind == "cluster" and name in ("", _CLUSTER):
        return ResourceType.CLUSTER, _CLUSTER, False
    if kind not in _KINDS or not colon or not name or kind == "cluster":
        raise WrongCall(f"{text!r} is not a resource; allowed: {_FORM}")
    is_prefix = name.endswith("*") and name != "*"
    return ResourceType[_KINDS[kind]], name.removesuffix("*") if is_prefix else name, is_prefix


# -- the actions


async def _decide(options: argparse.Namespace, output: Output) -> int:
    from semel.client.admin.security_values import (
        AclBinding,
        AclOperation,
        AclPatternType,
        AclPermission,
        AclResourceType,
    )

    kind, name, is_prefix = _resource(options.resource)
    rule = AclBinding(
        AclResourceType(kind),
        name,
        _principal(options.name),
        AclOperation(_operation(options.operation)),
        AclPermission[options.action.upper()],
        AclPatternType.PREFIXED if is_prefix else AclPatternType.LITERAL,
        options.host,
    )
    async with admin_for(options) as admin:
        await admin.create_acls(rule)
    if output.is_json:
        output.json({"rule": _document(rule)})
    else:
        output.note(str(_rule(rule)))
    return Exit.OK


async def _list(options: argparse.Namespace, output: Output) -> int:
    rules = await _found(options)
    if output.is_json:
        output.json({"rules": [_document(rule) for rule in rules]})
    elif rules:
        _show(output, rules)
    else:
        output.note("there are no such rules")
    return Exit.OK


async def _remove(options: argparse.Namespace, output: Output) -> int:
    if options.principal is None and options.resource is None:
        raise WrongCall("say which: --principal or --resource")
    from semel.client.admin.security_values import AclFilter

    rules = await _found(options)
    async with admin_for(options) as admin:
        await admin.delete_acls(
            AclFilter(
                rule.resource_type,
                rule.resource_name,
                rule.principal,
                rule.operation,
                rule.permission,
                rule.pattern_type,
                rule.host,
            )
            for rule in rules
        )
    if output.is_json:
        output.json({"removed": [_document(rule) for rule in rules]})
    else:
        if rules:
            _show(output, rules)
        output.note(f"{count_text(len(rules), 'rule')} removed")
    return Exit.OK


async def _explain(options: argparse.Namespace, output: Output) -> int:
    from semel.security.access_rules import AccessRules

    kind, name, is_prefix = _resource(options.resource)
    if is_prefix:
        raise WrongCall("a question is about one resource, not about a prefix")
    async with admin_for(options) as admin:
        rules = await admin.describe_acls()
    known = AccessRules(rules=[_rule(rule) for rule in rules])
    decision = known.decide(_principal(options.name), options.host, _operation(options.operation), kind, name)
    if output.is_json:
        output.json({"allowed": decision.allowed, "why": decision.why})
    else:
        output.note(f"{'allowed' if decision.allowed else 'denied'}: {decision.why}")
    return Exit.OK if decision.allowed else Exit.FAILED


async def _found(options: argparse.Namespace) -> list[AclBinding]:
    from semel.client.admin.security_values import AclFilter, AclPatternType, AclResourceType

    wanted = AclFilter(principal=None if options.principal is None else _principal(options.principal))
    if options.resource is not None:
        kind, name, is_prefix = _resource(options.resource)
        pattern = AclPatternType.PREFIXED if is_prefix else AclPatternType.LITERAL
        wanted = wanted._replace(resource_type=AclResourceType(kind), resource_name=name, pattern_type=pattern)
    async with admin_for(options) as admin:
        return sorted(await admin.describe_acls(wanted))


def _rule(rule: AclBinding) -> AccessRule:
    from semel.security.access_rules import AccessRule

    return AccessRule(
        int(rule.resource_type),
        rule.resource_name,
        int(rule.pattern_type),
        rule.principal,
        rule.host,
        int(rule.operation),
        int(rule.permission),
    )


def _document(rule: AclBinding) -> dict[str, str]:
    return {
        "principal": rule.principal,
        "host": rule.host,
        "permission": rule.permission.name.lower(),
        "operation": rule.operation.name.lower(),
        "resource": rule.resource_type.name.lower(),
        "name": rule.resource_name,
        "pattern": rule.pattern_type.name.lower(),
    }


def _show(output: Output, rules: list[AclBinding]) -> None:
    rows = [
        (
            rule.permission.name.lower(),
            rule.principal,
            rule.host,
            rule.operation.name.lower(),
            rule.resource_type.name.lower(),
            rule.resource_name + ("*" if rule.pattern_type.name == "PREFIXED" else ""),
        )
        for rule in rules
    ]
    output.table(("RULE", "PRINCIPAL", "HOST", "OPERATION", "RESOURCE", "NAME"), rows)
