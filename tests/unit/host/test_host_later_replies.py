"""Replies that are made together: when the round ends, and before anything else is done that might mind."""

import asyncio

import pytest
from network_peers import Pair, Recorder

from semel.host import ready_links, real_link, rounds
from semel.host.real_network import RealNetwork


class Together:
    """What happened, in order."""

    def __init__(self):
        self.events = []
        self.waiting = []

    def settle(self):
        if self.waiting:
            self.events.append(("settled", [later.receiver.name for later in self.waiting]))
        waiting, self.waiting = self.waiting, []
        for later in waiting:
            later.is_made = True


class Later:
    def __init__(self, receiver):
        self.receiver = receiver
        self.is_made = False

    def made(self):
        if not self.is_made:
            self.receiver.together.settle()
        return self.receiver.reply


class Replying(Recorder):
    """Replies later, or says what it did at once."""

    def __init__(self, name, together, reply):
        super().__init__()
        self.name = name
        self.together = together
        self.reply = reply
        self.is_quick = True
        self.act = lambda: None

    def received(self, count):
        super().received(count)
        self.act()
        if not self.is_quick:
            self.together.events.append(("acted too early" if self.together.waiting else "acted", self.name))
            return None
        later = Later(self)
        self.together.waiting.append(later)
        return later


class Round:
    """Links whose requests have all arrived before anybody reads; after a first round they are known to reply later."""

    def __init__(self, names):
        self.together = Together()
        self.ears = {name: Replying(name, self.together, b"<%s>" % name.encode()) for name in names}

    async def begin(self):
        self.network = RealNetwork()
        self.pairs = {name: await Pair.connect(self.network) for name in self.ears}
        for name, pair in self.pairs.items():
            pair.at_client = Recorder()
            pair.client.start(pair.at_client)
            pair.server.start(self.ears[name])
        await self.ask()
        for pair in self.pairs.values():
            await pair.at_client.until_bytes(3)
        self.together.events.clear()

    async def ask(self):
        """All of them, in one round."""
        for pair in self.pairs.values():
            pair.server.pause_reading()
            pair.client.send([b"?"])
        await asyncio.sleep(0.05)
        for pair in self.pairs.values():
            pair.server.resume_reading()

    def end(self):
        for pair in self.pairs.values():
            pair.client.close()
            pair.server.close()
            pair.listener.close()


@pytest.fixture(autouse=True, params=["compiled", "plain"])
def rounds_of(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(real_link, "Reader", rounds.Reader)
        monkeypatch.setattr(real_link, "RangeSender", None)
        monkeypatch.setattr(ready_links, "serve_compiled_round", None)
    elif ready_links.serve_compiled_round is None:
        pytest.skip("rounds are not compiled here")


async def test_the_replies_of_a_round_are_made_together_and_all_are_sent():
    round_ = Round("abcd")
    await round_.begin()
    await round_.ask()
    for name, pair in round_.pairs.items():
        await pair.at_client.until_bytes(6)
        assert pair.at_client.data == round_.ears[name].reply * 2
    ((what, names),) = round_.together.events
    assert what == "settled"
    assert sorted(names) == ["a", "b", "c", "d"]
    round_.end()


async def test_whoever_may_do_more_than_reply_later_begins_when_those_before_it_are_settled():
    """Settled are those before it, and it is not counted among those that reply later until it has done so again."""
    round_ = Round("abcd")
    await round_.begin()
    for name in "bd":
        round_.ears[name].is_quick = False
    await round_.ask()
    for name in "ac":
        await round_.pairs[name].at_client.until_bytes(6)
    await round_.ears["d"].until(lambda ear: ear.calls == 2)
    round_.together.events.clear()
    await round_.ask()
    for name in "ac":
        await round_.pairs[name].at_client.until_bytes(9)
    await round_.ears["d"].until(lambda ear: ear.calls == 3)
    assert sorted(name for what, name in round_.together.events if what == "acted") == ["b", "d"]
    assert sorted(name for what, names in round_.together.events if what == "settled" for name in names) == ["a", "c"]
    round_.end()


async def test_a_link_that_is_not_read_by_the_round_is_served_when_those_before_it_are_settled():
    round_ = Round("ab")
    await round_.begin()
    seen = []
    reader = round_.network._ready_links._readers
    serve = round_.network._ready_links._ready

    def ready(fd, events):
        seen.append(len(round_.together.waiting))
        serve(fd, events)

    round_.network._ready_links._ready = ready
    round_.ears["a"].act = lambda: reader.pop(round_.pairs["b"].server._fd, None)
    round_.ears["b"].act = lambda: reader.pop(round_.pairs["a"].server._fd, None)
    await round_.ask()
    for pair in round_.pairs.values():
        await pair.at_client.until_bytes(6)
    assert seen[0] == 0
    assert [what for what, _ in round_.together.events] == ["settled", "settled"]
    round_.end()


async def test_what_a_link_sends_itself_goes_behind_the_reply_that_it_has_not_made_yet():
    round_ = Round("ab")
    await round_.begin()
    heard = []

    def second_sends(name):
        heard.append(name)
        if len(heard) == 2:
            round_.pairs[heard[0]].server.send([b"more"])

    for name in "ab":
        round_.ears[name].act = lambda name=name: second_sends(name)
    await round_.ask()
    for pair in round_.pairs.values():
        await pair.at_client.until_bytes(6)
    first, second = heard
    await round_.pairs[first].at_client.until_bytes(10)
    assert round_.pairs[first].at_client.data == round_.ears[first].reply * 2 + b"more"
    assert round_.pairs[second].at_client.data == round_.ears[second].reply * 2
    round_.end()


async def test_the_reply_of_a_link_that_ends_is_made_all_the_same():
    round_ = Round("ab")
    await round_.begin()
    heard = []

    def second_closes(name):
        heard.append(name)
        if len(heard) == 2:
            round_.pairs[heard[0]].server.close()
            assert round_.together.waiting == []
            round_.ears[name].is_quick = False

    for name in "ab":
        round_.ears[name].act = lambda name=name: second_closes(name)
    await round_.ask()
    await round_.ears["a"].until(lambda _: len(heard) == 2)
    first, second = heard
    await round_.pairs[first].at_client.until_closed()
    assert round_.pairs[first].at_client.data == round_.ears[first].reply
    assert round_.together.events == [("settled", [first]), ("acted", second)]
    round_.end()


async def test_a_reply_that_was_sent_otherwise_is_nothing_and_one_that_fails_ends_its_link_alone():
    round_ = Round("abc")
    await round_.begin()
    round_.ears["a"].reply = None

    def fail():
        raise RuntimeError("planted")

    failing = type("Failing", (), {"is_made": False, "made": staticmethod(fail)})()
    round_.ears["b"].received = None
    round_.network._ready_links.watch(
        round_.pairs["b"].server._fd,
        round_.pairs["b"].server,
        1,
        real_link.Reader(
            round_.pairs["b"].server, round_.pairs["b"].server._fd, round_.ears["b"].get_buffer, lambda count: failing
        ),
    )
    round_.pairs["b"].server._reader = None
    for name in "abc":
        round_.pairs[name].client.send([b"?"])
    await round_.pairs["c"].at_client.until_bytes(6)
    await round_.pairs["b"].at_client.until_closed()
    assert round_.pairs["a"].at_client.data == b"<a>"
    round_.end()


async def test_who_asks_again_before_its_reply_is_made_gets_both_in_order():
    round_ = Round("ab")
    await round_.begin()
    pair, ear = round_.pairs["a"], round_.ears["a"]

    def ask_again():
        ear.act = lambda: setattr(ear, "reply", b"<second>")
        pair.client._socket.send(b"?")

    ear.act = ask_again
    await round_.ask()
    await pair.at_client.until_bytes(14)
    assert pair.at_client.data == b"<a><a><second>"
    assert [name for _, names in round_.together.events for name in names].count("a") == 2
    round_.end()
