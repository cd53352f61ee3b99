"""A term of deciding: what is not committed when it ends was never so, and nobody is told of it."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from led_metadata import LedMetadata

from semel.broker.controller_channel import LocalController
from semel.config import BrokerConfig
from semel.controller.active_controller import ActiveController
from semel.controller.controller import Controller, NewTopic
from semel.controller.image import MetadataImage
from semel.log.errors import BrokenLog, Refused
from semel.log.group_commit import GroupCommit
from semel.quorum.term import Term
from semel.quorum.voters import ReplicaKey, VoterNode, VoterSet
from semel.records.build import build_batch
from semel.rpc.slices import Slices
from semel.sim.clock import SimClock
from semel.sim.disk import SimDisk
from semel.sim.loop import run
from semel.wire.errors import ErrorCode
from semel.wire.spec.elect_leaders import ElectLeadersRequest
from semel.wire.spec.metadata_records import (
    BeginTransactionRecord,
    BrokerEndpoint,
    FeatureLevelRecord,
    TopicRecord,
)

FEATURES = {"metadata.version": 7}


class Room:
    """One of two voters: what it decides counts when the other has it, which the test says."""

    def __init__(self) -> None:
        self.disk = SimDisk(1)
        self.led = LedMetadata(self.disk, is_alone=False)
        self.clock = SimClock(asyncio.get_running_loop())  # type: ignore[arg-type]
        self.controller: Controller | None = None
        self.channel = LocalController(self.current, lambda: self.led.committed, Slices(self.clock))
        self.active = ActiveController(self.current, lambda: self.led.committed)

    def current(self) -> Controller:
        if self.controller is None:
            raise Refused(ErrorCode.NOT_CONTROLLER, "not yet")
        return self.controller

    async def elected(self, epoch: int, *, is_first: bool = False) -> Term:
        """The first record of a term is written, as the replica does it."""
        keys = [ReplicaKey(1), ReplicaKey(2)]
        log = self.led.log
        term = Term(
            keys[0],
            epoch,
            log,
            VoterSet(map(VoterNode, keys)),
            GroupCommit(log.log, lambda error: None),
            self.disk,
            self.clock,
        )
        term.append(build_batch([b"\0\0"], keys=[b"\0\0\0\2"], base_timestamp_ms=1, control=True))
        self.led.metadata.leads(term)
        return term

    async def begin(self) -> Term:
        """A term in which this node decides, with one broker that is there."""
        await self.led.metadata.open(may_drop=False)
        term = await self.elected(1)
        await self.commit(term)
        self.controller = Controller(self.led.term, BrokerConfig({"node.id": "1"}), Random(1), self.clock)
        starting = asyncio.ensure_future(
            self.controller.start_broker([BrokerEndpoint(name="PLAINTEXT", host="h", port=9092)], None, FEATURES)
        )
        await asyncio.sleep(0)
        await self.commit(term)
        await starting
        return term

    async def commit(self, term: Term) -> None:
        """The other voter has all of it."""
        await asyncio.sleep(0.1)  # it is on disk here
        term.fetched(ReplicaKey(2), term.log_end)
        await self.led.metadata.committed_further()

    def lose(self, term: Term) -> None:
        term.end()
        self.led.metadata.leads_no_more(term)


def code(error: BaseException | None) -> int:
    assert isinstance(error, Refused), error
    return error.code


def test_what_was_not_committed_is_forgotten_and_nobody_is_told_of_it() -> None:
    async def scenario() -> None:
        room = Room()
        term = await room.begin()
        made = asyncio.ensure_future(room.channel.create_topics([NewTopic("t")]))
        refused = asyncio.ensure_future(room.channel.create_topics([NewTopic("t")]))
        elected = asyncio.ensure_future(room.active.elect_leaders(ElectLeadersRequest(election_type=0)))
        await asyncio.sleep(0.2)
        assert "t" in room.led.decided.topics
        assert not any(one.done() for one in (made, refused, elected))
        room.lose(term)
        for waiting in (made, refused):
            (result,) = await waiting
            assert code(result) == ErrorCode.NOT_CONTROLLER  # type: ignore[arg-type]
        assert (await elected).error_code == ErrorCode.NOT_CONTROLLER
        assert "t" not in room.led.committed.topics
        (result,) = await room.channel.create_topics([NewTopic("u")])
        assert code(result) == ErrorCode.NOT_CONTROLLER  # type: ignore[arg-type]
        # What stays in the log may count yet: another term begins with what is committed by then, and not sooner.
        again = await room.elected(2)
        await room.led.metadata.committed_further()
        assert room.led.metadata.term is None
        await room.commit(again)
        assert "t" in room.led.committed.topics
        assert room.led.decided == room.led.committed

    run(scenario())


def test_what_was_committed_before_the_end_is_answered_as_it_is() -> None:
    async def scenario() -> None:
        room = Room()
        term = await room.begin()
        made = asyncio.ensure_future(room.channel.create_topics([NewTopic(f"t{number}") for number in range(70)]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await room.commit(term)
        await asyncio.sleep(0.1)
        room.lose(term)
        results = await made
        assert [isinstance(one, Refused) for one in results] == [False] * 50 + [True] * 20
        assert len(room.led.committed.topics) == 50

    run(scenario())


def test_a_term_that_ends_before_it_could_decide_decides_nothing() -> None:
    async def scenario() -> None:
        room = Room()
        await room.led.metadata.open(may_drop=False)
        term = await room.elected(1)
        await room.led.metadata.committed_further()
        assert room.led.metadata.term is None
        room.lose(term)
        await room.led.metadata.committed_further()
        assert room.led.metadata.term is None

    run(scenario())


def test_decisions_of_a_term_are_one_whole_among_records_that_others_wrote() -> None:
    """Control records stand between them: these are read from the log."""

    async def scenario() -> None:
        room = Room()
        term = await room.begin()
        written = room.led.write([TopicRecord(name="a", topic_id=b"\x01" * 16)])
        term.append(build_batch([b"\0\0"], keys=[b"\0\0\0\6"], base_timestamp_ms=1, control=True))
        later = room.led.write([TopicRecord(name="b", topic_id=b"\x02" * 16)])
        await room.commit(term)
        await asyncio.gather(written, later)
        assert room.led.committed.topics.keys() == {"a", "b"}
        assert room.led.committed == room.led.decided
        again = LedMetadata(room.disk)
        await again.open()
        assert again.committed == room.led.committed

    run(scenario())


def test_a_transaction_that_the_controller_before_left_open_is_aborted() -> None:
    async def scenario() -> None:
        room = Room()
        term = await room.begin()
        room.led.write([BeginTransactionRecord(name="x")])
        room.led.write([FeatureLevelRecord(name="x.version", feature_level=1)])
        await room.commit(term)
        room.lose(term)
        again = await room.elected(2)
        await room.commit(again)
        room.led.write([TopicRecord(name="t", topic_id=b"\x05" * 16)])
        await room.commit(again)
        assert "x.version" not in room.led.committed.features
        assert "t" in room.led.committed.topics

    run(scenario())


def test_a_snapshot_is_of_one_moment_though_the_image_goes_on_meanwhile() -> None:
    async def scenario() -> None:
        room = Room()
        term = await room.begin()
        for number in range(3000):
            room.led.write([TopicRecord(name=f"t{number}", topic_id=number.to_bytes(16, "big"))])
        await room.commit(term)
        writing = asyncio.ensure_future(room.led.snapshot())
        await asyncio.sleep(0)
        room.led.write([TopicRecord(name="later", topic_id=b"\x05" * 16)])
        await room.commit(term)
        await writing
        (snapshot,) = term.snapshots()
        again = LedMetadata(room.disk)
        await again.metadata.open(may_drop=False)
        assert len(again.committed.topics) == 3000
        assert again.metadata.next_offset == snapshot.end_offset
        await again.replica.start()
        assert again.committed == room.led.committed != MetadataImage()

    run(scenario())


@pytest.mark.parametrize("may_drop", [True, False])
def test_a_damaged_snapshot_is_passed_over_and_only_who_can_ask_others_drops_it(may_drop: bool) -> None:
    async def scenario() -> None:
        room = Room()
        term = await room.begin()
        room.led.write([TopicRecord(name="t", topic_id=b"\x05" * 16)])
        await room.commit(term)
        await room.led.snapshot()
        (snapshot,) = term.snapshots()
        room.disk.flip_bit(f"{room.led.log.log.directory}/{snapshot.name}", 200, 3)
        again = LedMetadata(room.disk)
        if may_drop:
            await again.metadata.open(may_drop=True)
            assert (again.log.end_offset, again.committed) == (0, MetadataImage())
        else:
            with pytest.raises(BrokenLog, match="no whole snapshot"):
                await again.metadata.open(may_drop=False)

    run(scenario())
