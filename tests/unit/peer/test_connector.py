"""A connection for a caller that is not a client: ready for requests, or the reason why there is none."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from scripted_broker import Asked, ScriptedCluster, scripted, silent
from semel.peer.connector import Connector
from semel.peer.errors import AuthenticationFailed, BadSetting, TimedOut, TokenUnavailable, Unreachable, Unsupported
from semel.peer.security.oauthbearer import OAuthBearer
from semel.peer.security.sasl import Mechanism, Plain
from semel.rpc.connection import Connection
from semel.wire.errors import ErrorCode
from semel.wire.spec.api_versions import ApiVersionsRequest, ApiVersionsResponse
from semel.wire.spec.metadata import MetadataRequest, MetadataResponse
from semel.wire.spec.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from semel.wire.spec.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


class Caller:
    """Opens connections to node 1, and notes which of them have ended."""

    def __init__(self, cluster: ScriptedCluster, login: Callable[[], Mechanism] | None = None, **given: Any) -> None:
        self.ended: list[Connection] = []
        self.connector = Connector(
            cluster.host("node7"),
            client_id="node 7",
            software_version="1.2.3",
            timeout_s=5.0,
            max_frame_bytes=1 << 20,
            login=login,
            **given,
        )
        if login is not None:
            cluster.limits |= {SaslHandshakeRequest.api_key: (0, 1), SaslAuthenticateRequest.api_key: (0, 2)}
            cluster.rules[SaslHandshakeRequest] = lambda asked: SaslHandshakeResponse(mechanisms=["PLAIN"])
            cluster.rules[SaslAuthenticateRequest] = lambda asked: SaslAuthenticateResponse()

    async def open(self) -> Connection:
        return await self.connector.open("broker1", 9092, self.ended.append)


def plain() -> Mechanism:
    return Plain("node7", "secret")


@scripted()
async def test_a_connection_knows_the_versions_and_takes_requests(cluster: ScriptedCluster) -> None:
    caller = Caller(cluster)
    connection = await caller.open()
    version = connection.version_of(MetadataRequest)
    assert (await connection.send(MetadataRequest(topics=[]), version, MetadataResponse, 1.0)).brokers
    (asked,) = cluster.all(ApiVersionsRequest)
    assert (asked.client_id, asked.body.client_software_name, asked.body.client_software_version) == (
        "node 7",
        "semel",
        "1.2.3",
    )
    connection.close()
    assert caller.ended == [connection]


@scripted()
async def test_a_node_that_is_not_there_is_unreachable(cluster: ScriptedCluster) -> None:
    cluster.node(1).stop()
    with pytest.raises(Unreachable, match="cannot connect to broker1:9092: "):
        await Caller(cluster).open()


@scripted()
async def test_a_node_that_says_nothing_has_the_time_that_it_has(cluster: ScriptedCluster) -> None:
    cluster.rules[ApiVersionsRequest] = silent
    caller = Caller(cluster)
    with pytest.raises(TimedOut, match="broker1:9092 did not take the connection within 5 s"):
        await caller.open()
    assert cluster.loop.time() == pytest.approx(5, abs=0.01)
    assert not any(connection.is_open for connection in caller.ended)


@scripted()
async def test_a_node_that_does_not_tell_its_versions_is_not_supported(cluster: ScriptedCluster) -> None:
    cluster.rules[ApiVersionsRequest] = lambda asked: ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    caller = Caller(cluster)
    with pytest.raises(Unsupported, match="answers the question for its versions with"):
        await caller.open()
    assert len(caller.ended) == 1


@scripted()
async def test_with_tls_nothing_is_said_to_a_node_that_does_not_speak_it(cluster: ScriptedCluster) -> None:
    caller = Caller(cluster, tls=ssl.create_default_context())
    with pytest.raises(TimedOut):
        await caller.open()
    assert cluster.asked == []


# -- logging in


@scripted()
async def test_who_has_a_login_logs_in_before_the_connection_is_given_out(cluster: ScriptedCluster) -> None:
    connection = await Caller(cluster, plain).open()
    assert cluster.kinds == ["SaslHandshake", "SaslAuthenticate"]
    assert bytes(cluster.all(SaslAuthenticateRequest)[0].body.auth_bytes) == b"\0node7\0secret"
    connection.close()


@scripted()
async def test_a_refused_login_ends_the_connection(cluster: ScriptedCluster) -> None:
    caller = Caller(cluster, plain)
    cluster.rules[SaslAuthenticateRequest] = lambda asked: SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="who are you?"
    )
    with pytest.raises(AuthenticationFailed, match=r"who are you\?") as refused:
        await caller.open()
    assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert len(caller.ended) == 1


@scripted()
async def test_a_login_that_cannot_begin_ends_the_connection_with_the_reason(cluster: ScriptedCluster) -> None:
    async def away() -> str:
        raise ConnectionRefusedError("down")

    async def inline(function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    for login, kind in (
        (lambda: OAuthBearer(away, in_thread=inline), TokenUnavailable),
        (lambda: Plain("node7", "\ud800"), BadSetting),
    ):
        caller = Caller(cluster, login)
        with pytest.raises(kind):
            await caller.open()
        assert len(caller.ended) == 1


@scripted()
async def test_a_login_is_renewed_before_it_ends_until_the_connector_is_closed(cluster: ScriptedCluster) -> None:
    caller = Caller(cluster, plain)

    def for_a_minute(asked: Asked) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(session_lifetime_ms=60_000)

    cluster.rules[SaslAuthenticateRequest] = for_a_minute
    connection = await caller.open()
    await asyncio.sleep(50)
    assert len(cluster.all(SaslAuthenticateRequest)) == 1
    await asyncio.sleep(10)
    assert len(cluster.all(SaslAuthenticateRequest)) == 2
    assert connection.is_open
    await caller.connector.close()
    await asyncio.sleep(600)
    assert len(cluster.all(SaslAuthenticateRequest)) == 2
    connection.close()


@scripted()
async def test_a_login_that_is_refused_later_ends_the_connection(cluster: ScriptedCluster) -> None:
    caller = Caller(cluster, plain)
    cluster.rules[SaslAuthenticateRequest] = lambda asked: SaslAuthenticateResponse(session_lifetime_ms=60_000)
    connection = await caller.open()
    cluster.rules[SaslAuthenticateRequest] = lambda asked: SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED
    )
    await asyncio.sleep(60)
    assert not connection.is_open
    assert caller.ended == [connection]


def test_without_a_login_nothing_of_sasl_is_loaded() -> None:
    """Most programs do without, and start sooner."""
    code = "import sys, semel.peer.connector, semel.peer.nodes; print([m for m in sys.modules if 'security' in m])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
