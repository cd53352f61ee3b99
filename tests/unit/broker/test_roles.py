"""How handlers get what they need, and on which kinds of listener they are served."""

from __future__ import annotations

import dataclasses
import inspect
from importlib import import_module
from typing import Any, cast, get_type_hints

import pytest
from broker_harness import Node, simulated

from semel.broker.authoriser import AllowAll
from semel.broker.context import RequestContext
from semel.broker.handlers import CONTROLLER_HANDLERS, FORWARDABLE, HANDLERS, Served, heartbeat
from semel.broker.roles import ControllerRoles, Roles
from semel.broker.router import Router
from semel.config import ListenerKind
from semel.log.errors import Refused
from semel.rpc.served import CloseConnection
from semel.wire.codec import decoder
from semel.wire.errors import ErrorCode
from semel.wire.frame import request_bytes
from semel.wire.schema import Request
from semel.wire.spec.api_versions import ApiVersionsRequest, ApiVersionsResponse
from semel.wire.spec.heartbeat import HeartbeatRequest
from semel.wire.spec.metadata import MetadataRequest

LENGTH_BYTES = 4


class Connection:
    """As much of one as handlers see."""

    principal = "User:ANONYMOUS"
    host = "127.0.0.1"
    is_authenticated = True
    peer = "127.0.0.1:5"
    number = 1

    def __init__(self, listener: str = "PLAINTEXT") -> None:
        self.listener = listener


TABLES = [(HANDLERS[key], Roles) for key in HANDLERS if key not in FORWARDABLE] + [
    (served, ControllerRoles) for served in CONTROLLER_HANDLERS.values()
]


@pytest.mark.parametrize(("served", "roles"), TABLES)
def test_a_handler_names_roles_that_there_are_by_their_types(served: Served, roles: type[Any]) -> None:
    handle = import_module(f"semel.broker.handlers.{served.module}").handle
    there, wanted = get_type_hints(roles), get_type_hints(handle)
    parameters = inspect.signature(handle).parameters
    assert list(parameters)[:2] == ["request", "context"]
    for name in list(parameters)[2:]:
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert wanted[name] == there[name]


@pytest.mark.parametrize("roles", [Roles, ControllerRoles])
def test_every_role_is_needed_by_a_handler(roles: type[Any]) -> None:
    named = {
        name
        for served, of in TABLES
        for name in inspect.signature(import_module(f"semel.broker.handlers.{served.module}").handle).parameters
        if of is roles
    }
    assert {field.name for field in dataclasses.fields(roles)} <= named


async def test_a_handler_is_tested_without_a_broker() -> None:
    class NobodyHere:
        async def heartbeat(self, request: HeartbeatRequest) -> None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "nobody is here")

    context = RequestContext(cast(Any, Connection()), 4, "client", AllowAll())
    response = await heartbeat.handle(HeartbeatRequest(group_id="g"), context, groups=cast(Any, NobodyHere()))
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID


# -- listeners


def router_of(node: Node) -> Router:
    part = node.broker.controller_part
    assert part is not None
    roles = dataclasses.replace(node.broker.roles, listeners={"BOTH": ListenerKind.CLIENTS | ListenerKind.BROKERS})
    controller = dataclasses.replace(part.roles, listeners={"INSIDE": ListenerKind.CONTROLLERS})
    broker = node.broker
    counts = broker.counts.requests
    return Router(AllowAll(), roles, broker.generation, broker.long_requests, counts, controller=controller)


def asked(router: Router, request: Request, version: int, listener: str) -> Any:
    frame = request_bytes(request, version, 1, "raw")
    return router.dispatch(cast(Any, Connection(listener)), memoryview(frame)[LENGTH_BYTES:])


@simulated()
async def test_an_api_is_served_on_its_kinds_of_listener_only(node: Node) -> None:
    router = router_of(node)
    assert asked(router, MetadataRequest(topics=[]), 12, "BOTH")
    with pytest.raises(CloseConnection, match="Metadata is not served here"):
        asked(router, MetadataRequest(topics=[]), 12, "INSIDE")


@simulated()
async def test_versions_are_told_of_what_is_served_on_the_listener(node: Node) -> None:
    router = router_of(node)
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    told = {}
    for listener in ("BOTH", "INSIDE"):
        body = b"".join(asked(router, request, 3, listener))
        response, _ = decoder(ApiVersionsResponse, 3)(memoryview(body), 8)
        told[listener] = {one.api_key for one in response.api_keys}
    assert told == {"BOTH": set(HANDLERS), "INSIDE": set(CONTROLLER_HANDLERS)}
