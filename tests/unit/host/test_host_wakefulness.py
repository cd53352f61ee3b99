"""When a server's loop stays awake for the next request, and when it sleeps: with a clock and a loop of straw."""

import asyncio

from network_peers import Pair, Recorder

from semel.host.real_network import RealNetwork
from semel.host.wakefulness import SHORT_GAP_NS, Wakefulness


class StrawLoop:
    """Runs what was asked for, one turn at a time, on a clock that the test moves."""

    def __init__(self):
        self.now_ns = 10**9
        self.soon = []
        self.served = 0
        self.held_up = 0
        self.wakefulness = Wakefulness(self, lambda: self.now_ns)

    def call_soon(self, callback):
        self.soon.append(callback)

    def serve(self, *, takes_ns=0):
        def serve():
            self.served += 1
            self.now_ns += takes_ns

        self.wakefulness.serve(serve, lambda: self.held_up)

    def turn(self):
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()

    @property
    def is_awake(self):
        return bool(self.soon)


def test_a_single_request_lets_the_loop_sleep():
    loop = StrawLoop()
    loop.serve()
    assert loop.served == 1
    assert not loop.is_awake


def test_a_request_soon_after_another_keeps_the_loop_awake_for_as_long_as_a_short_gap():
    loop = StrawLoop()
    loop.serve()
    loop.now_ns += SHORT_GAP_NS - 1
    loop.serve()
    for _ in range(3):
        assert loop.is_awake
        loop.turn()
    loop.now_ns += SHORT_GAP_NS - 1
    loop.turn()
    assert loop.is_awake
    loop.now_ns += 1
    loop.turn()
    assert not loop.is_awake


def test_the_time_that_serving_takes_is_no_gap():
    loop = StrawLoop()
    loop.serve(takes_ns=10 * SHORT_GAP_NS)
    loop.serve(takes_ns=10 * SHORT_GAP_NS)
    assert loop.is_awake
    loop.turn()
    assert loop.is_awake


def test_requests_with_long_gaps_let_the_loop_sleep_each_time():
    loop = StrawLoop()
    for _ in range(5):
        loop.now_ns += SHORT_GAP_NS
        loop.serve()
        assert not loop.is_awake


def test_a_loop_that_is_awake_is_kept_so_once_however_much_it_serves():
    loop = StrawLoop()
    for _ in range(10):
        loop.serve()
    assert len(loop.soon) == 1
    loop.turn()
    loop.serve()
    assert len(loop.soon) == 1


def test_a_peer_that_must_read_first_lets_the_loop_sleep():
    loop = StrawLoop()
    loop.serve()
    loop.held_up = 1
    loop.serve()
    assert not loop.is_awake
    loop.held_up = 0
    loop.serve()
    assert loop.is_awake
    loop.held_up = 1
    loop.serve()
    loop.turn()
    assert not loop.is_awake


class TurnsSeen:
    """How often the loop turned of itself: callbacks that nobody but the network asks for."""

    def __init__(self, loop):
        self.count = 0
        self._call_soon = loop.call_soon
        loop.call_soon = self.call_soon

    def call_soon(self, callback, *args, context=None):
        self.count += getattr(callback, "__name__", "") == "_stay_awake"
        return self._call_soon(callback, *args, context=context)


async def test_a_network_that_listens_stays_awake_between_requests_and_sleeps_after_them():
    seen = TurnsSeen(asyncio.get_running_loop())
    pair = await Pair.connect(RealNetwork())
    pair.start()
    for number in range(200):
        pair.client.send([b"?"])
        await pair.at_server.until_bytes(number + 1)
    assert seen.count > 0
    await asyncio.sleep(0.01)
    turns = seen.count
    await asyncio.sleep(0.05)
    assert seen.count == turns
    pair.client.close()
    pair.server.close()
    pair.listener.close()


async def test_a_network_that_only_connects_sleeps_whenever_it_can():
    async def echo(reader, writer):
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    seen = TurnsSeen(asyncio.get_running_loop())
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    link = await RealNetwork().connect(*server.sockets[0].getsockname())
    answers = Recorder()
    link.start(answers)
    for number in range(200):
        link.send([b"?"])
        await answers.until_bytes(number + 1)
    assert seen.count == 0
    link.close()
    server.close()
    await server.wait_closed()
