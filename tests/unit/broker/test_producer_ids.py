"""InitProducerId: ids come in blocks that are durable before use, and never repeat."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from broker_harness import BROKER, Node, RawClient, simulated

from semel.broker.producer_ids import ProducerIds
from semel.controller.controller import PRODUCER_ID_BLOCK
from semel.log.errors import Refused
from semel.sim.power import PowerLost
from semel.wire.errors import ErrorCode
from semel.wire.spec.init_producer_id import InitProducerIdRequest
from semel.wire.spec.metadata_records import ProducerIdsRecord


async def init(client: RawClient, version: int = 5, **options: Any) -> tuple[int, int, int]:
    request = InitProducerIdRequest(**{"transactional_id": None, "transaction_timeout_ms": 1000, **options})
    response = await client.ask(request, version)
    return response.error_code, response.producer_id, response.producer_epoch


@pytest.mark.parametrize("version", range(6))
@simulated()
async def test_every_producer_gets_an_id_of_its_own_at_epoch_zero(node: Node, version: int) -> None:
    client = await node.client()
    answers = [await init(client, version) for _ in range(3)]
    assert [(code, epoch) for code, _, epoch in answers] == [(0, 0)] * 3
    assert len({producer_id for _, producer_id, _ in answers}) == 3


@simulated()
async def test_a_block_is_durable_before_its_first_id_is_given_out(node: Node) -> None:
    client = await node.client()
    node.hold_flushes()
    answer = asyncio.ensure_future(init(client))
    await asyncio.sleep(30)
    assert not answer.done()
    await answer
    assert node.broker.image.producer_ids.next_producer_id == PRODUCER_ID_BLOCK


@simulated()
async def test_many_who_ask_at_once_share_one_block(node: Node) -> None:
    clients = [await node.client() for _ in range(50)]
    node.hold_flushes(100)
    end_offset = node.broker.metadata.next_offset
    answers = await asyncio.gather(*(init(client) for client in clients))
    assert len({producer_id for _, producer_id, _ in answers}) == 50
    assert node.broker.metadata.next_offset == end_offset + 1


@simulated()
async def test_the_next_block_follows_when_one_is_used_up(node: Node) -> None:
    client = await node.client()
    ids = [(await init(client))[1] for _ in range(PRODUCER_ID_BLOCK + 2)]
    assert ids == list(range(PRODUCER_ID_BLOCK + 2))


class Blocks:
    """A controller whose blocks come when the test says so."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[range]] = []

    async def allocate(self) -> range:
        self.asked.append(asyncio.get_running_loop().create_future())
        return await self.asked[-1]


async def all_went_on() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_next_block_is_asked_for_before_the_last_is_used_up() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.allocate)
    first = asyncio.ensure_future(ids.next())
    await all_went_on()
    blocks.asked[0].set_result(range(1000))
    given = [await first]
    while len(blocks.asked) == 1:
        given.append(await ids.next())
        await all_went_on()
    assert given == list(range(900)), "a tenth is left"
    given += [await ids.next() for _ in range(50)]
    blocks.asked[1].set_result(range(5000, 6000))
    given += [await ids.next() for _ in range(51)]
    assert given == [*range(1000), 5000]
    assert len(blocks.asked) == 2


async def test_a_block_that_could_not_be_had_early_is_asked_for_again_when_it_is_needed() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.allocate)
    first = asyncio.ensure_future(ids.next())
    await all_went_on()
    blocks.asked[0].set_result(range(2))
    assert await first == 0
    await all_went_on()
    blocks.asked[1].set_exception(Refused(ErrorCode.NOT_CONTROLLER, "moved"))
    await all_went_on()
    assert await ids.next() == 1
    await all_went_on()
    waiting = [asyncio.ensure_future(ids.next()) for _ in range(2)]
    await all_went_on()
    assert len(blocks.asked) == 3
    blocks.asked[2].set_exception(Refused(ErrorCode.NOT_CONTROLLER, "moved"))
    for one in waiting:
        with pytest.raises(Refused, match="moved"):
            await one
    ids.close()


@simulated()
async def test_who_leaves_while_a_block_is_made_does_not_take_it_from_the_others(node: Node) -> None:
    client, other = await node.client(), await node.client()
    node.hold_flushes(1000)
    client.send(InitProducerIdRequest()).add_done_callback(lambda future: future.exception())
    await asyncio.sleep(0.1)
    answer = asyncio.ensure_future(init(other))
    await asyncio.sleep(0.1)
    node.world.wires.cut(client.link)  # type: ignore[arg-type]
    assert (await answer)[0] == 0


@pytest.mark.parametrize("when", ["before", "during", "after"])
@pytest.mark.parametrize("seed", range(3))
@simulated()
async def test_ids_never_repeat_whatever_dies_when(node: Node, when: Any, seed: int) -> None:
    node.disk.random.seed(seed)
    given: list[int] = []
    crashes = 0
    for call in range(1, 60):
        # Each start allocates anew, so that the power fails at each disk call of an allocation in turn.
        node.world.lose_power(BROKER)
        await node.start()
        client = await node.client()
        node.disk.crash_at(node.disk.calls + call, when)
        try:
            async with asyncio.timeout(1):
                given.append((await init(client))[1])
                given.append((await init(client))[1])
        except (TimeoutError, ConnectionError, PowerLost):
            crashes += 1
        if not node.disk.dead:
            break
    assert crashes, "the power failed at least once in an allocation"
    assert given
    assert len(set(given)) == len(given)


@pytest.mark.parametrize("how", ["restart", "killed_and_started", "power_cut_and_started"])
@simulated()
async def test_ids_never_repeat_over_starts(node: Node, how: str) -> None:
    given = []
    for _ in range(4):
        client = await node.client()
        given += [(await init(client))[1] for _ in range(3)]
        await getattr(node, how)()
    assert len(set(given)) == 12


@simulated()
async def test_when_all_ids_are_used_up_it_is_refused_and_says_so(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    last = (1 << 63) - 1 - PRODUCER_ID_BLOCK
    await node.broker.controller.metadata.write([ProducerIdsRecord(broker_id=1, next_producer_id=last)])
    client = await node.client()
    assert await init(client) == (0, last, 0), "the last block is given out"
    node.broker.producer_ids._block = range(0)
    end_offset = node.broker.metadata.next_offset
    with caplog.at_level(logging.CRITICAL, "semel.broker"):
        for _ in range(2):
            assert await init(client) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1)
    assert "producer ids" in caplog.text
    assert "used up" in caplog.text
    assert node.broker.metadata.next_offset == end_offset


@simulated()
async def test_a_producer_that_lost_its_sequence_gets_a_new_id(node: Node) -> None:
    client = await node.client()
    _, old, _ = await init(client)
    code, new, epoch = await init(client, producer_id=old, producer_epoch=0)
    assert (code, epoch) == (0, 0)
    assert new != old


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 3)])
@simulated()
async def test_half_an_identity_is_refused(node: Node, producer_id: int, epoch: int) -> None:
    client = await node.client()
    answer = await init(client, producer_id=producer_id, producer_epoch=epoch)
    assert answer == (ErrorCode.INVALID_REQUEST, -1, -1)
