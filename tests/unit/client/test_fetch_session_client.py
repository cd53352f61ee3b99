"""The client's side of fetch sessions, alone and against the broker's side: both must always know the same."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.broker.fetch_sessions import FetchSessions
from semel.client.consumer.fetch_session import FetchSession, Key, Wanted
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import FetchRequest, FetchResponse

ID = b"\x01" * 16


def wanted(**offsets: int) -> dict[Key, Wanted]:
    return {("t", int(name[1:])): Wanted(offset, 0, 1000) for name, offset in offsets.items()}


def named(asked: object) -> dict[tuple[str, int], int]:
    return {
        (topic.topic, part.partition): part.fetch_offset
        for topic in asked.topics  # type: ignore[attr-defined]
        for part in topic.partitions
    }


def forgotten(asked: object) -> list[tuple[str, int]]:
    return [(topic.topic, index) for topic in asked.forgotten for index in topic.partitions]  # type: ignore[attr-defined]


def test_the_first_request_names_everything_and_the_next_only_what_changed() -> None:
    session = FetchSession()
    asked = session.ask(wanted(p0=0, p1=5), False)
    assert (asked.session_id, asked.epoch, named(asked)) == (0, 0, {("t", 0): 0, ("t", 1): 5})
    assert session.answered(FetchResponse(session_id=77))
    asked = session.ask(wanted(p0=0, p1=9, p2=1), False)
    assert (asked.session_id, asked.epoch) == (77, 1)
    assert named(asked) == {("t", 1): 9, ("t", 2): 1}
    assert forgotten(asked) == []
    assert session.answered(FetchResponse(session_id=77))
    asked = session.ask(wanted(p0=0, p2=1), False)
    assert (asked.epoch, named(asked), forgotten(asked)) == (2, {}, [("t", 1)])


def test_a_broker_without_room_for_a_session_is_told_everything_every_time() -> None:
    session = FetchSession()
    for _ in range(3):
        asked = session.ask(wanted(p0=0), False)
        assert (asked.session_id, asked.epoch, named(asked)) == (0, 0, {("t", 0): 0})
        assert session.answered(FetchResponse(session_id=0))


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 77),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 77),
    ],
)
def test_after_an_error_everything_is_named_again_and_an_old_session_is_ended(code: int, session_id: int) -> None:
    session = FetchSession()
    session.ask(wanted(p0=0), False)
    session.answered(FetchResponse(session_id=77))
    session.ask(wanted(p0=3), False)
    assert not session.answered(FetchResponse(error_code=code))
    asked = session.ask(wanted(p0=3), False)
    assert (asked.session_id, asked.epoch, named(asked)) == (session_id, 0, {("t", 0): 3})


def test_a_lost_answer_begins_a_new_session() -> None:
    session = FetchSession()
    session.ask(wanted(p0=0), False)
    session.answered(FetchResponse(session_id=77))
    session.ask(wanted(p0=3), False)
    session.failed()
    asked = session.ask(wanted(p0=3), False)
    assert (asked.session_id, asked.epoch, named(asked)) == (77, 0, {("t", 0): 3})


def test_going_from_names_to_ids_begins_a_new_session() -> None:
    session = FetchSession()
    session.ask(wanted(p0=0), False)
    session.answered(FetchResponse(session_id=77))
    asked = session.ask({(ID, 0): Wanted(4, 0, 1000)}, True)
    assert (asked.epoch, asked.topics[0].topic_id, asked.topics[0].topic) == (0, ID, "")
    assert asked.forgotten == []


def test_the_epoch_wraps_to_one() -> None:
    session = FetchSession()
    session.ask(wanted(p0=0), False)
    session.answered(FetchResponse(session_id=77))
    session.epoch = (1 << 31) - 1
    session.ask(wanted(p0=1), False)
    session.answered(FetchResponse(session_id=77))
    assert session.epoch == 1


PARTITIONS = st.dictionaries(st.integers(0, 4), st.integers(0, 3), max_size=5)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(PARTITIONS, st.sampled_from(["ok", "ok", "ok", "lost request", "lost answer"])), max_size=30))
def test_the_broker_always_reads_exactly_what_the_client_wants(steps: list[tuple[dict[int, int], str]]) -> None:
    """Also after requests and answers were lost: the broker's half of the code is the other side."""
    broker = FetchSessions(Random(1), 10)
    client = FetchSession()
    for offsets, fate in steps:
        wants: dict[Key, Wanted] = {("t", index): Wanted(offset, 0, 1000) for index, offset in offsets.items()}
        if not wants:
            continue
        asked = client.ask(wants, False)
        request = FetchRequest(
            session_id=asked.session_id,
            session_epoch=asked.epoch,
            topics=asked.topics,
            forgotten_topics_data=asked.forgotten,
        )
        if fate == "lost request":
            client.failed()
            continue
        try:
            session = broker.begin(request, False, 0)
        except Refused as refusal:
            client.answered(FetchResponse(error_code=refusal.code))
            continue
        assert {key: part.fetch_offset for key, part in session.partitions.items()} == {
            key: what.offset for key, what in wants.items()
        }
        if fate == "lost answer":
            client.failed()
        else:
            assert client.answered(FetchResponse(session_id=session.session_id))
    assert len(broker) <= 10
