"""The links of a loop that are ready together: served in one round, with small answers kept to its end."""

import asyncio
import os
import select
import socket

import pytest
from network_peers import Pair, Recorder

from open_descriptors import open_descriptors
from semel.host.ready_links import ROUNDS_PER_TURN
from semel.host.real_network import RealNetwork


class Answering(Recorder):
    """Does something whenever something comes."""

    def __init__(self, act):
        super().__init__()
        self._act = act

    def received(self, count):
        super().received(count)
        self._act()


async def _until(condition):
    for _ in range(20_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise TimeoutError


async def _answered(act):
    """A connection whose server does `act(its link)` once it has heard something; the pair and the client's ear."""
    pair = await Pair.connect(RealNetwork())
    pair.at_client = Recorder()
    pair.at_server = Answering(lambda: act(pair.server))
    pair.client.start(pair.at_client)
    pair.server.start(pair.at_server)
    pair.client.send([b"?"])
    return pair


def _end(pair):
    pair.client.close()
    pair.server.close()
    pair.listener.close()


async def test_small_answers_are_kept_until_the_round_is_over_and_come_in_order():
    def answer(link):
        for number in range(5):
            link.send([b"%d" % number])
            assert link.unsent_bytes == 0

    pair = await _answered(answer)
    await pair.at_client.until_bytes(5)
    assert pair.at_client.data == b"01234"
    assert pair.at_client.calls == 1
    assert pair.at_server.drains == 0
    _end(pair)


async def test_a_large_answer_takes_those_kept_before_it_along():
    large = os.urandom(1 << 20)
    parts = [[b"a"], [b"b", b"c"], [b"d"], [large], [b"e"]]
    pair = await _answered(lambda link: [link.send(part) for part in parts])
    await pair.at_client.until_bytes(5 + len(large))
    assert pair.at_client.data == b"abcd" + large + b"e"
    await _until(lambda: pair.server.unsent_bytes == 0)
    _end(pair)


async def test_answers_to_a_peer_that_does_not_read_are_all_sent_when_it_does():
    piece = bytes(10_000)

    def answer(link):
        for _ in range(2000):
            link.send([piece])

    pair = await _answered(answer)
    pair.client.pause_reading()
    await _until(lambda: pair.server.unsent_bytes > 1 << 20)
    pair.client.resume_reading()
    await pair.at_client.until_bytes(2000 * len(piece))
    await pair.at_server.until(lambda recorder: recorder.drains == 1)
    assert pair.server.unsent_bytes == 0
    _end(pair)


async def test_whoever_continues_when_the_link_has_drained_is_told_until_the_end():
    """As TLS does: it sends on when the link below has drained, and only waits if that has something to send."""
    left = [bytes(1000)] * 30
    pair = await Pair.connect(RealNetwork())
    over = asyncio.Event()

    class Sending(Recorder):
        def drained(self):
            while left and not pair.server.unsent_bytes:
                pair.server.send([left.pop()])
            if not left and not pair.server.unsent_bytes:
                over.set()

    pair.at_client, pair.at_server = Recorder(), Sending()
    pair.client.start(pair.at_client)
    pair.server.start(pair.at_server)
    pair.server.send([bytes(16 << 20)])
    await pair.at_client.until_bytes((16 << 20) + 30_000)
    async with asyncio.timeout(20):
        await over.wait()
    _end(pair)


async def test_an_answer_that_was_kept_is_sent_before_its_link_closes():
    def answer(link):
        link.send([b"farewell"])
        link.close_when_sent()

    pair = await _answered(answer)
    await pair.at_client.until_closed()
    assert pair.at_client.data == b"farewell"
    assert pair.at_client.closings == [None]
    await pair.at_server.until_closed()
    _end(pair)


async def test_an_answer_that_was_kept_is_dropped_with_a_link_that_ends_at_once():
    def answer(link):
        link.send([b"never"])
        link.close()
        link.send([b"nor this"])

    pair = await _answered(answer)
    await pair.at_client.until_closed()
    assert pair.at_client.data == b""
    assert pair.server.unsent_bytes == 0
    _end(pair)


async def test_a_link_that_another_one_closes_in_the_same_round_is_not_served_any_more():
    network = RealNetwork()
    pairs = [await Pair.connect(network) for _ in range(2)]

    def close_the_other(me):
        pairs[1 - me].server.close()

    ears = [Answering(lambda me=me: close_the_other(me)) for me in range(2)]
    for pair in pairs:
        pair.at_client = Recorder()
        pair.client.start(pair.at_client)
        pair.client.send([b"?"])
    await asyncio.sleep(0.05)  # both have come: the next round finds both ready
    for pair, ear in zip(pairs, ears, strict=True):
        pair.server.start(ear)
    await _until(lambda: ears[0].closings or ears[1].closings)
    assert sorted(len(ear.data) for ear in ears) == [0, 1]
    for pair in pairs:
        _end(pair)


class Replying(Recorder):
    """Returns a reply, and then does something to another link of the same round."""

    def __init__(self, reply):
        super().__init__()
        self._reply = reply
        self.act = lambda: None

    def received(self, count):
        super().received(count)
        self.act()
        return self._reply


async def _two_in_one_round(act, acts_after=2):
    """Of two links that are read in one round, the second does `act(first, second)` when the first has its reply kept;
    or the first does it, before the second is read. What the clients of both have heard in the end."""
    network = RealNetwork()
    pairs = [await Pair.connect(network), await Pair.connect(network)]
    for pair in pairs:
        pair.at_client, pair.at_server = Recorder(), Replying(b"reply")
        pair.client.start(pair.at_client)
        pair.client.send([b"?"])
    await asyncio.sleep(0.05)  # both have arrived before anybody reads
    heard = []
    for pair, other in (pairs, pairs[::-1]):

        def hear(pair=pair, other=other):
            heard.append(pair)
            if len(heard) == acts_after:
                act(heard[0].server, (pair if acts_after == 2 else other).server)

        pair.at_server.act = hear
        pair.server.start(pair.at_server)
    first, second = await _both(pairs, heard)
    return first, second, pairs


async def _both(pairs, heard):
    await _until(lambda: len(heard) == 2)
    first, second = heard
    await second.at_client.until_bytes(5)
    return first, second


async def test_what_is_sent_after_a_kept_reply_goes_behind_it():
    for more in (b"small", bytes(1 << 20)):
        first, second, pairs = await _two_in_one_round(lambda first, second, more=more: first.send([more]))
        await first.at_client.until_bytes(5 + len(more))
        assert first.at_client.data == b"reply" + more
        assert second.at_client.data == b"reply"
        for pair in pairs:
            _end(pair)


async def test_a_reply_does_not_overtake_what_was_kept_for_its_link_before():
    """The first link that is read sends something by the second, which replies in the same round."""
    for kept in (b"kept", b"k" * 20_000):
        first, second, pairs = await _two_in_one_round(
            lambda first, second, kept=kept: second.send([kept]), acts_after=1
        )
        await second.at_client.until_bytes(5 + len(kept))
        assert second.at_client.data == kept + b"reply"
        second.client.send([b"again"])
        await second.at_client.until_bytes(10 + len(kept))
        assert second.at_client.data == kept + b"reply" * 2
        assert first.at_client.data == b"reply"
        for pair in pairs:
            _end(pair)


async def test_a_kept_reply_is_sent_before_its_link_is_closed():
    first, _, pairs = await _two_in_one_round(lambda first, second: first.close_when_sent())
    await first.at_client.until_closed()
    assert first.at_client.data == b"reply"
    for pair in pairs:
        _end(pair)


async def test_a_kept_reply_ends_with_its_link_and_reaches_nobody_else():
    others = []

    def reuse_its_descriptor(first, second):
        fd = first._fd
        first.close()
        others.extend(socket.socketpair())
        assert fd in [other.fileno() for other in others]

    first, _, pairs = await _two_in_one_round(reuse_its_descriptor)
    await first.at_client.until_closed()
    assert first.at_client.data == b""
    for other in others:
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(100)
    for other in others:
        other.close()
    for pair in pairs:
        _end(pair)


async def test_what_fails_while_one_link_is_served_does_not_hold_back_the_answers_of_others():
    network = RealNetwork()
    good, bad = await Pair.connect(network), await Pair.connect(network)
    failures = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: failures.append(told["exception"]))
    good.at_client = Recorder()
    good.client.start(good.at_client)
    good.client.send([b"?"])
    bad.client.send([b"?"])
    await asyncio.sleep(0.05)

    def fail(events):
        raise RuntimeError("planted")

    good.server.start(Answering(lambda: good.server.send([b"!"])))
    bad.server.start(Recorder())
    network._ready_links.watch(bad.server._fd, bad.server, select.EPOLLIN)  # without a reader
    network._ready_links._watched[bad.server._fd] = type("Failing", (), {"ready": staticmethod(fail)})()
    await good.at_client.until_bytes(1)
    assert str(failures[0]) == "planted"
    _end(bad)
    _end(good)


async def test_the_last_link_that_ends_gives_the_descriptor_back():
    before = open_descriptors()
    network = RealNetwork()
    for _ in range(3):
        pair = await Pair.connect(network)
        pair.start()
        pair.client.send([b"hello"])
        await pair.at_server.until_bytes(5)
        assert not network._ready_links.is_closed
        _end(pair)
        assert network._ready_links.is_closed
        await asyncio.sleep(0)
        assert open_descriptors() <= before


async def test_the_loop_has_its_turn_while_a_link_is_ready_for_ever():
    echoes = 0
    pair = await Pair.connect(RealNetwork())

    def echo(link):
        nonlocal echoes
        echoes += 1
        link.send([b"!"])

    pair.at_client = Answering(lambda: echo(pair.client))
    pair.at_server = Answering(lambda: echo(pair.server))
    pair.client.start(pair.at_client)
    pair.server.start(pair.at_server)
    pair.client.send([b"?"])
    await _until(lambda: echoes > 0)
    most = 0
    for _ in range(20):
        before = echoes
        await asyncio.sleep(0)
        most = max(most, echoes - before)
    assert 0 < most <= 2 * ROUNDS_PER_TURN
    _end(pair)


async def test_a_server_keeps_as_much_in_the_system_for_a_peer_as_it_was_told():
    for told_bytes in (102_400, 20_000):
        pair = await Pair.connect(RealNetwork(told_bytes))
        pair.start()
        kept_bytes = pair.server._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        assert kept_bytes == 2 * told_bytes  # the system counts its own overhead in
        pair.server.send([bytes(8 << 20)])
        await pair.at_client.until_bytes(8 << 20)
        assert pair.client._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) != kept_bytes
        _end(pair)


async def test_a_network_that_was_told_nothing_leaves_it_to_the_system():
    pair = await Pair.connect(RealNetwork())
    with socket.socket() as untouched:
        chosen_bytes = untouched.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    assert pair.server._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= chosen_bytes
    _end(pair)
