"""The fault proxy itself: what it lets pass is unchanged, clients stay behind it, and each fault is what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from client_world import BROKER, ClientWorld, RawClient, batch_of, produce_request
from real_broker import Brokers
from semel.host.real import real_host
from semel.sim.attack.fault_answers import FIRST_GENERATION_HIDDEN, FIRST_GENERATION_LIMITS
from semel.sim.attack.fault_policy import Blow, Fault, ScriptedFaults, drawn_faults
from semel.sim.attack.fault_proxy import FaultProxy
from semel.wire.apis import API
from semel.wire.spec.api_versions import ApiVersionsRequest
from semel.wire.spec.describe_cluster import DescribeClusterRequest
from semel.wire.spec.find_coordinator import FindCoordinatorRequest
from semel.wire.spec.metadata import MetadataRequest, MetadataRequestTopic

TOPIC = "topic"
ANSWER_S = 600.0


async def connected(world: ClientWorld) -> RawClient:
    host, _, port = world.address.rpartition(":")
    return RawClient(await world.host().network.connect(host, int(port)))


def through(script: dict[tuple[str, int], Blow]) -> Callable[[Callable[[ClientWorld], Awaitable[None]]], None]:
    """Runs a scenario in a world whose proxy follows a script."""

    def run(scenario: Callable[[ClientWorld], Awaitable[None]]) -> None:
        world = ClientWorld(1, ScriptedFaults(script))

        async def whole(world: ClientWorld) -> None:
            await world.create_topic(TOPIC, 1)
            await scenario(world)

        world.run(whole)

    return run


async def is_cut(asked: Awaitable[Any]) -> bool:
    try:
        async with asyncio.timeout(ANSWER_S):
            await asked
    except ConnectionError:
        return True
    return False


async def values(world: ClientWorld) -> list[bytes | None]:
    return [record.value for record in await world.logged(TOPIC, 0)]


def test_every_version_of_an_answer_that_names_brokers_leads_back_to_the_proxy() -> None:
    async def scenario(world: ClientWorld) -> None:
        client = await connected(world)
        host, _, port = world.address.rpartition(":")
        door = (host, int(port))
        for version in range(API[3].min_version, API[3].max_version + 1):
            answer = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), version)
            assert [(broker.host, broker.port) for broker in answer.brokers] == [door]
            assert [topic.name for topic in answer.topics] == [TOPIC]
        for version in range(API[10].min_version, API[10].max_version + 1):
            found = await client.ask(FindCoordinatorRequest(key="g", coordinator_keys=["g"]), version)
            found = found if version < 4 else found.coordinators[0]
            assert (found.host, found.port) == door
        for version in range(API[60].min_version, API[60].max_version + 1):
            described = await client.ask(DescribeClusterRequest(), version)
            assert [(broker.host, broker.port) for broker in described.brokers] == [door]

    through({})(scenario)


def test_a_broker_that_an_answer_names_for_the_first_time_gets_a_door_of_its_own() -> None:
    async def scenario(world: ClientWorld) -> None:
        doors = {await world.proxy.open(BROKER, 9092), await world.proxy.open("other", 9092)}
        assert len(doors) == 2
        assert await world.proxy.open("other", 9092) in doors

    through({})(scenario)


@pytest.mark.parametrize("version", [0, 3, 4])
def test_versions_and_features_can_be_hidden(version: int) -> None:
    world = ClientWorld(1, generation=1)

    async def scenario(world: ClientWorld) -> None:
        client = await connected(world)
        request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
        answer = await client.ask(request, version)
        served = {entry.api_key: entry.max_version for entry in answer.api_keys}
        assert {key: served[key] for key in FIRST_GENERATION_LIMITS} == FIRST_GENERATION_LIMITS
        assert served[1] == 18
        features = {feature.name for feature in [*answer.finalized_features, *answer.supported_features]}
        assert not features & FIRST_GENERATION_HIDDEN

    world.run(scenario)


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_IN_REQUEST])
def test_a_request_that_is_cut_off_is_not_served(fault: Fault) -> None:
    async def scenario(world: ClientWorld) -> None:
        client = await connected(world)
        assert await is_cut(client.produce(TOPIC, batch_of(b"lost")))
        assert await values(world) == []

    through({("Produce", 1): Blow(fault)})(scenario)


@pytest.mark.parametrize("fault", [Fault.CUT_AFTER, Fault.CUT_IN_ANSWER])
def test_an_answer_is_lost_after_the_broker_has_written(fault: Fault) -> None:
    async def scenario(world: ClientWorld) -> None:
        client = await connected(world)
        assert await is_cut(client.produce(TOPIC, batch_of(b"kept")))
        assert await values(world) == [b"kept"]

    through({("Produce", 1): Blow(fault)})(scenario)


def test_a_late_request_is_written_when_its_client_has_long_gone_on() -> None:
    async def scenario(world: ClientWorld) -> None:
        client = await connected(world)
        assert await is_cut(client.produce(TOPIC, batch_of(b"late")))
        again = await connected(world)
        await again.produce(TOPIC, batch_of(b"early"))
        assert await values(world) == [b"early"]
        await asyncio.sleep(30)
        assert await values(world) == [b"early", b"late"]

    through({("Produce", 1): Blow(Fault.LATE_REQUEST, delay_s=20)})(scenario)


@pytest.mark.parametrize("fault", [Fault.LATE_REQUEST, Fault.DELAY_REQUEST, Fault.DRIP_REQUEST], ids=lambda f: f.name)
def test_what_is_sent_when_all_has_passed_comes_after_what_was_held_back(fault: Fault) -> None:
    async def scenario(world: ClientWorld) -> None:
        await world.proxy.until_passed()
        client = await connected(world)
        held = asyncio.ensure_future(is_cut(client.produce(TOPIC, batch_of(b"held back"))))
        await asyncio.sleep(1)
        client.close()
        await world.proxy.until_passed()
        await (await connected(world)).produce(TOPIC, batch_of(b"next"))
        assert await values(world) == [b"held back", b"next"]
        await held

    through({("Produce", 1): Blow(fault, delay_s=20)})(scenario)


@pytest.mark.parametrize(
    "fault", [Fault.DELAY_REQUEST, Fault.DELAY_ANSWER, Fault.DRIP_REQUEST, Fault.DRIP_ANSWER], ids=lambda f: f.name
)
def test_what_is_slow_arrives_whole_and_in_order(fault: Fault) -> None:
    async def scenario(world: ClientWorld) -> None:
        client = await connected(world)
        began_s = world.loop.time()
        first, second = (asyncio.ensure_future(client.produce(TOPIC, batch_of(value))) for value in (b"1", b"2"))
        assert (await first).base_offset == 0
        assert world.loop.time() - began_s > 2.9
        assert (await second).base_offset == 1
        assert world.loop.time() - began_s < 5

    through({("Produce", 1): Blow(fault, delay_s=3.5)})(scenario)


def test_a_request_can_reach_the_broker_twice_and_is_answered_once() -> None:
    async def scenario(world: ClientWorld) -> None:
        client = await connected(world)
        assert (await client.produce(TOPIC, batch_of(b"twice"))).base_offset == 0
        assert await values(world) == [b"twice", b"twice"], "without a producer id nobody can tell"
        assert (await client.produce(TOPIC, batch_of(b"once"))).base_offset == 2

    through({("Produce", 1): Blow(Fault.DUPLICATE)})(scenario)


@pytest.mark.parametrize(("fault", "written"), [(Fault.REFUSE, [b"2"]), (Fault.DENY, [b"1", b"2"])])
def test_a_request_can_be_answered_with_an_error_in_its_turn(fault: Fault, written: list[bytes]) -> None:
    async def scenario(world: ClientWorld) -> None:
        client = await connected(world)
        asked = [asyncio.ensure_future(client.produce(TOPIC, batch_of(value))) for value in (b"1", b"2")]
        first, second = await asyncio.gather(*asked)
        assert first.error_code != 0
        assert first.base_offset == -1
        assert (second.error_code, second.base_offset) == (0, len(written) - 1)
        assert await values(world) == written

    through({("Produce", 1): Blow(fault)})(scenario)


@pytest.mark.parametrize(("fault", "written"), [(Fault.SWALLOW_REQUESTS, 0), (Fault.SWALLOW_ANSWERS, 2)])
def test_a_half_open_connection_answers_nothing_and_says_nothing(fault: Fault, written: int) -> None:
    async def scenario(world: ClientWorld) -> None:
        client = await connected(world)
        asked = [asyncio.ensure_future(client.produce(TOPIC, batch_of(value))) for value in (b"1", b"2")]
        _, pending = await asyncio.wait(asked, timeout=ANSWER_S)
        assert len(pending) == 2
        assert not client.is_closed.is_set()
        assert len(await values(world)) == written
        client.close()
        await asyncio.gather(*asked, return_exceptions=True)
        other = await connected(world)
        assert (await other.produce(TOPIC, batch_of(b"3"))).base_offset == written

    through({("Produce", 1): Blow(fault)})(scenario)


def test_a_produce_without_acks_is_not_waited_for() -> None:
    async def scenario(world: ClientWorld) -> None:
        client = await connected(world)
        client.send(produce_request(TOPIC, batch_of(b"unasked"), acks=0), 9, is_answered=False)
        assert (await client.produce(TOPIC, batch_of(b"asked"))).base_offset == 1

    through({})(scenario)


def test_one_seed_is_one_history() -> None:
    def history() -> list[str]:
        world = ClientWorld(7)
        world.faults = drawn_faults(world.random("faults"), most=5)
        logs: list[str] = []

        async def scenario(world: ClientWorld) -> None:
            await world.create_topic(TOPIC, 1)
            for number in range(40):
                client = await connected(world)
                asked = client.produce(TOPIC, batch_of(b"%d" % number))
                try:
                    async with asyncio.timeout(10):
                        await asked
                except (ConnectionError, TimeoutError):
                    pass
                client.close()
            logs.extend(world.proxy.log)

        world.run(scenario)
        return logs

    first = history()
    assert any("[" in line for line in first), "there were faults"
    assert first == history()


async def test_it_stands_before_a_real_broker_too(brokers: Brokers) -> None:
    broker = brokers.start(flush="os")
    host = real_host()
    proxy = FaultProxy(host, ScriptedFaults({("Produce", 2): Blow(Fault.CUT_AFTER)}))
    try:
        name, _, port = (await proxy.open("127.0.0.1", broker.port)).rpartition(":")
        client = RawClient(await host.network.connect(name, int(port)))
        answer = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 9)
        assert [(node.host, node.port) for node in answer.brokers] == [(name, int(port))]
        assert (await client.produce(TOPIC, batch_of(b"1", timestamp_ms=1))).error_code == 0
        assert await is_cut(client.produce(TOPIC, batch_of(b"2", timestamp_ms=1)))
        client = RawClient(await host.network.connect(name, int(port)))
        assert (await client.produce(TOPIC, batch_of(b"3", timestamp_ms=1))).base_offset == 2
        client.close()
        proxy.check()
    finally:
        await proxy.close()
        host.close()
