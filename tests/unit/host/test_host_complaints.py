"""What may be complained of again and again is said once, then counted."""

import asyncio
import logging

from semel.host.complaints import Complaints
from semel.sim.loop import run

logger = logging.getLogger("semel.test_complaints")


def said(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG]


def test_the_first_is_said_at_once_and_a_thousand_more_in_one_line(caplog):
    async def scenario():
        complaints = Complaints(logger)
        for number in range(1001):
            complaints.say("kind", logging.WARNING, "number %d", number)
        assert said(caplog) == ["number 0"]
        await asyncio.sleep(61)
        assert said(caplog)[1:] == ["number 1000 (1000 like it within 60 s, this is the last)"]
        await asyncio.sleep(3600)
        assert len(said(caplog)) == 2
        complaints.say("kind", logging.WARNING, "number %d", 7)
        assert said(caplog)[2:] == ["number 7"], "after a quiet minute it is said at once again"

    run(scenario())


def test_each_kind_is_counted_by_itself_and_one_that_came_twice_is_said_twice(caplog):
    async def scenario():
        complaints = Complaints(logger)
        for kind in ("a", "b", "a"):
            complaints.say(kind, logging.ERROR, "of %s", kind)
        await asyncio.sleep(61)
        assert said(caplog) == ["of a", "of b", "of a"]

    run(scenario())


def test_who_listens_at_debug_hears_all(caplog):
    async def scenario():
        complaints = Complaints(logger)
        with caplog.at_level(logging.DEBUG, logger.name):
            for number in range(5):
                complaints.say("kind", logging.WARNING, "number %d", number)
        assert [record.getMessage() for record in caplog.records] == [f"number {number}" for number in range(5)]

    run(scenario())


def test_one_that_never_ends_takes_a_line_a_minute(caplog):
    async def scenario():
        complaints = Complaints(logger)
        for _ in range(3600):
            complaints.say("kind", logging.ERROR, "again")
            await asyncio.sleep(1)
        assert 60 <= len(said(caplog)) <= 62

    run(scenario())
