"""What fails on the way to a broker is told to a program as an error of the client, with nothing lost of it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from known_cluster import known

import semel
from scripted_broker import Asked, ScriptedCluster, scripted
from semel.client.cluster import Cluster
from semel.client.errors import AuthenticationFailed, Closed, Disconnected, RetriableError, SemelError
from semel.client.peers import KINDS, as_semel_error, own_errors
from semel.peer import errors as peer
from semel.wire.errors import ErrorCode
from semel.wire.spec.metadata import MetadataRequest, MetadataResponse
from semel.wire.spec.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from semel.wire.spec.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

PEERS = [
    cls
    for _, cls in inspect.getmembers(peer, inspect.isclass)
    if issubclass(cls, peer.PeerError) and cls is not peer.PeerError
]


@pytest.mark.parametrize("cls", PEERS)
def test_every_error_of_a_peer_has_a_name_in_the_client_and_keeps_what_it_says(
    cls: type[peer.PeerError],
) -> None:
    cause = KeyError("below")
    with pytest.raises(KINDS[cls], match="what happened") as told, own_errors():
        raise cls("what happened", code=58) from cause
    assert type(told.value) is KINDS[cls]
    assert (told.value.text, told.value.code) == ("what happened", 58)
    assert told.value.__cause__ is cause
    assert issubclass(KINDS[cls], cls) or KINDS[cls] is RetriableError


@pytest.mark.parametrize("cls", list(KINDS.values()))
def test_an_error_that_is_the_clients_already_passes_as_it_is(cls: type[SemelError]) -> None:
    error = cls("ours")
    assert as_semel_error(error) is error
    with pytest.raises(cls) as told, own_errors():
        raise error
    assert told.value is error


def test_what_is_neither_passes_as_it_is() -> None:
    with pytest.raises(KeyError):
        as_semel_error(KeyError("a mistake of ours"))


@scripted()
async def test_a_node_that_is_not_there_is_an_error_of_the_client(cluster: ScriptedCluster) -> None:
    async with known(cluster) as client:
        with pytest.raises(Disconnected, match="node 7 is not part of the cluster any more") as told:
            await client.call(7, *metadata())
        assert type(told.value) is semel.errors.Disconnected
        assert "try again later" in str(told.value)
    with pytest.raises(Closed, match="the client was closed"):
        await client.call(1, *metadata())


def metadata() -> tuple[Any, Any]:
    return MetadataRequest(topics=[]), MetadataResponse


def log_in_at(cluster: ScriptedCluster, **settings: Any) -> Cluster:
    cluster.limits |= {SaslHandshakeRequest.api_key: (0, 1), SaslAuthenticateRequest.api_key: (0, 2)}
    return Cluster(cluster.host(), cluster.settings(security_protocol="SASL_PLAINTEXT", **settings))


@scripted()
async def test_a_refused_login_is_an_error_of_the_client_with_the_brokers_code(cluster: ScriptedCluster) -> None:
    def refuse(asked: Asked) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="no such user")

    cluster.rules[SaslHandshakeRequest] = lambda asked: SaslHandshakeResponse(mechanisms=["PLAIN"])
    cluster.rules[SaslAuthenticateRequest] = refuse
    client = log_in_at(cluster, sasl_plain_username="alice", sasl_plain_password="wrong")
    with pytest.raises(AuthenticationFailed, match=r"no such user \(check user, password and certificates\)") as told:
        await client.start()
    assert type(told.value) is semel.errors.AuthenticationFailed
    assert told.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    await client.close()


@scripted()
async def test_an_error_of_the_client_that_a_token_provider_raises_is_told_as_it_is(cluster: ScriptedCluster) -> None:
    raised = semel.errors.NotAuthorised("no token for you")

    async def provider() -> str:
        raise raised

    cluster.rules[SaslHandshakeRequest] = lambda asked: SaslHandshakeResponse(mechanisms=["OAUTHBEARER"])
    client = log_in_at(cluster, sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=provider)
    with pytest.raises(semel.errors.NotAuthorised) as told:
        await client.start()
    assert told.value is raised
    await client.close()
