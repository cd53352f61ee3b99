"""What Network and Link promise: over real sockets, with rounds that are compiled and without, and in the simulated
world."""

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from network_peers import Pair, Recorder

from semel.host import ready_links, real_link, rounds
from semel.host.api import FileRange
from semel.host.real_disk import RealDisk
from semel.host.real_network import RealNetwork
from semel.sim.disk import SimDisk
from semel.sim.loop import SimLoop
from semel.sim.network import SimNetwork, Wires

LOOPS = {"asyncio": asyncio.new_event_loop, "not compiled": asyncio.new_event_loop, "simulated": SimLoop}


class World:
    def __init__(self, kind, tmp_path):
        self._kind = kind
        self.simulated = kind == "simulated"
        self.disk = SimDisk(3) if self.simulated else RealDisk()
        self.root = "/" if self.simulated else f"{tmp_path}/"

    def network(self):
        return SimNetwork(Wires(asyncio.get_running_loop(), 5), "node") if self.simulated else RealNetwork()

    def run(self, scenario):
        async def main():
            pair = (await Pair.connect(self.network())).start()
            await scenario(pair)
            pair.close()

        self.run_alone(main)

    def run_alone(self, main):
        with asyncio.Runner(loop_factory=LOOPS[self._kind]) as runner:
            runner.run(main())

    def file(self, data, name="segment"):
        file = self.disk.open(self.root + name, create=True)
        file.write_at(0, data)
        return file


@pytest.fixture(params=LOOPS)
def world(request, tmp_path, monkeypatch):
    monkeypatch.setattr(real_link, "LINGER_S", 60)  # no test may pass because a link gave up waiting
    if request.param == "not compiled":
        monkeypatch.setattr(real_link, "Reader", rounds.Reader)
        monkeypatch.setattr(real_link, "RangeSender", None)
        monkeypatch.setattr(ready_links, "serve_compiled_round", None)
    world = World(request.param, tmp_path)
    yield world
    world.disk.close()


def pattern(length):
    return bytes(i * 7 % 251 for i in range(251)) * (length // 251 + 1)


def test_bytes_arrive_in_order_both_ways(world):
    async def scenario(pair):
        for number in range(200):
            pair.client.send([b"%06d" % number])
            pair.server.send([b"<", b"%04d" % number, b">"])
        await pair.at_server.until_bytes(1200)
        await pair.at_client.until_bytes(1200)
        assert pair.at_server.data == b"".join(b"%06d" % number for number in range(200))
        assert pair.at_client.data == b"".join(b"<%04d>" % number for number in range(200))

    world.run(scenario)


def test_a_small_buffer_is_filled_again_and_again(world):
    async def scenario(pair):
        small = Recorder(7)
        pair.at_server._buffer = small._buffer
        pair.client.send([pattern(1000)[:1000]])
        await pair.at_server.until_bytes(1000)
        assert pair.at_server.data == pattern(1000)[:1000]
        assert pair.at_server.calls >= 1000 / 7

    world.run(scenario)


class Replying(Recorder):
    """Returns a reply to whatever comes, and may do something before."""

    def __init__(self, reply, act=lambda: None):
        super().__init__()
        self._reply = reply
        self._act = act

    def received(self, count):
        super().received(count)
        self._act()
        return self._reply


def _with_replies(world, reply, scenario, act=lambda link: None):
    async def main():
        pair = await Pair.connect(world.network())
        pair.at_client, pair.at_server = Recorder(), Replying(reply, lambda: act(pair.server))
        pair.client.start(pair.at_client)
        pair.server.start(pair.at_server)
        pair.client.send([b"?"])
        await scenario(pair)
        pair.close()

    world.run_alone(main)


def test_what_the_receiver_returns_is_sent(world):
    async def scenario(pair):
        for number in range(1, 20):
            await pair.at_client.until_bytes(3 * number)
            pair.client.send([b"?"])
        assert pair.server.unsent_bytes == 0
        assert pair.at_server.drains == 0

    _with_replies(world, b"yes", scenario)


def test_what_the_receiver_sends_before_it_returns_goes_first(world):
    async def scenario(pair):
        await pair.at_client.until_bytes(6)
        assert pair.at_client.data == b"noyes!"

    _with_replies(world, b"yes!", scenario, lambda link: link.send([b"no"]))


def test_a_reply_to_a_peer_that_does_not_read_waits_for_it(world):
    reply = pattern(8_000_000)[:8_000_000]

    async def scenario(pair):
        await pair.at_client.until_bytes(len(reply))
        as_sent = pair.at_client.data == reply
        assert as_sent
        await pair.at_server.until(lambda server: server.drains)
        assert pair.server.unsent_bytes == 0

    _with_replies(world, reply, scenario)


def test_a_reply_is_sent_before_the_end_that_follows_it(world):
    async def scenario(pair):
        await pair.at_client.until_closed()
        assert pair.at_client.data == b"goodbye"

    _with_replies(world, b"goodbye", scenario, lambda link: asyncio.get_running_loop().call_soon(link.close_when_sent))


def test_no_reply_is_sent_by_a_link_that_has_ended(world):
    async def scenario(pair):
        await pair.at_client.until_closed()
        assert pair.at_client.data == b""

    _with_replies(world, b"too late", scenario, lambda link: link.close())


def test_file_ranges_travel_between_bytes_and_are_released(world):
    content = pattern(3_000_000)[:3_000_000]

    async def scenario(pair):
        file = world.file(content)
        parts = [b"head", FileRange(file, 0, 0), FileRange(file, 5, 2_000_000), b"", b"middle", FileRange(file, 9, 1)]
        expected = b"head" + content[5:2_000_005] + b"middle" + content[9:10] + b"tail"
        pair.server.send([*parts, b"tail"])
        await pair.at_client.until_bytes(len(expected))
        as_sent = pair.at_client.data == expected
        assert as_sent
        assert file.pins == 0
        assert pair.server.unsent_bytes == 0

    world.run(scenario)


def test_a_slow_reader_makes_the_sender_queue_and_drain_tells_the_end(world):
    content = pattern(30_000_000)[:30_000_000]

    async def scenario(pair):
        file = world.file(content)
        pair.client.pause_reading()
        whole = [b"a" * 10, FileRange(file, 0, 20_000_000), b"b" * 1_000_000, FileRange(file, 20_000_000, 10_000_000)]
        pair.server.send(whole)
        pair.server.send([b"end"])
        assert pair.server.unsent_bytes > 10_000_000
        assert file.pins >= 1
        pair.client.resume_reading()
        await pair.at_client.until_bytes(31_000_013)
        await pair.at_server.until(lambda server: server.drains)
        assert (pair.server.unsent_bytes, file.pins, pair.at_server.drains) == (0, 0, 1)
        received = bytes(pair.at_client.data)
        expected = b"a" * 10 + content[:20_000_000] + b"b" * 1_000_000 + content[20_000_000:] + b"end"
        as_sent = received == expected  # compared outside of assert: pytest would spell out the difference
        assert as_sent

    world.run(scenario)


def test_nothing_waits_and_nothing_drains_when_the_socket_takes_all(world):
    async def scenario(pair):
        pair.client.send([b"small"])
        pair.client.send([b"parts", b" in two"])
        assert pair.client.unsent_bytes == 0
        await pair.at_server.until_bytes(17)
        assert pair.at_client.drains == 0

    world.run(scenario)


def test_closing_drops_the_queue_and_releases_its_ranges(world):
    async def scenario(pair):
        file = world.file(bytes(30_000_000))
        pair.client.pause_reading()
        pair.server.send([FileRange(file, 0, 30_000_000), b"x", FileRange(file, 0, 10)])
        pair.server.close()
        assert (file.pins, pair.server.unsent_bytes) == (0, 0)
        assert pair.at_server.closings == []  # told in a turn of its own
        await pair.at_server.until_closed()
        pair.client.resume_reading()
        await pair.at_client.until_closed()
        pair.server.close()
        await asyncio.sleep(0)
        assert pair.at_server.closings == [None]
        assert len(pair.at_client.closings) == 1

    world.run(scenario)


def test_the_end_of_the_stream_is_told_once_after_the_last_byte(world):
    async def scenario(pair):
        pair.client.send([b"last words"])
        pair.client.close()
        await pair.at_server.until_closed()
        assert pair.at_server.data == b"last words"
        assert pair.at_server.closings == [None]
        await pair.at_client.until_closed()
        assert pair.at_client.closings == [None]

    world.run(scenario)


def test_sending_after_the_end_drops_and_releases(world):
    async def scenario(pair):
        file = world.file(b"data")
        pair.client.close()
        pair.client.send([b"x", FileRange(file, 0, 4)])
        pair.client.send([b"x"])
        await pair.at_server.until_closed()
        assert (file.pins, pair.client.unsent_bytes, pair.at_server.data) == (0, 0, b"")

    world.run(scenario)


def test_close_when_sent_delivers_everything_although_the_peer_still_talks(world):
    async def scenario(pair):
        file = world.file(pattern(5_000_000)[:5_000_000])
        pair.client.pause_reading()
        pair.server.pause_reading()
        pair.client.send([b"unread request " * 1000])
        pair.server.send([FileRange(file, 0, 5_000_000), b"error"])
        pair.server.close_when_sent()
        pair.server.send([b"too late", FileRange(file, 0, 1)])
        pair.client.resume_reading()
        await pair.at_client.until_closed()
        assert pair.at_client.closings == [None]
        as_sent = pair.at_client.data == pattern(5_000_000)[:5_000_000] + b"error"
        assert as_sent
        pair.client.close()
        await pair.at_server.until_closed()
        assert (file.pins, pair.at_server.data) == (0, b"")

    world.run(scenario)


def test_close_when_sent_does_not_reset_a_peer_whose_bytes_were_not_read(world):
    async def scenario(pair):
        pair.server.pause_reading()
        pair.client.send([b"a request that nobody will read"])
        await asyncio.sleep(0.02)
        pair.server.send([b"error"])
        pair.server.close_when_sent()
        await pair.at_client.until_closed()
        assert (pair.at_client.data, pair.at_client.closings) == (b"error", [None])
        pair.client.close()
        await pair.at_server.until_closed()

    world.run(scenario)


def test_close_when_sent_with_nothing_queued_ends_at_once(world):
    async def scenario(pair):
        pair.server.close_when_sent()
        await pair.at_client.until_closed()
        pair.client.close()
        await pair.at_server.until_closed()
        assert (pair.at_client.closings, pair.at_server.closings) == ([None], [None])

    world.run(scenario)


def test_a_paused_reader_gets_nothing_until_it_resumes(world):
    async def scenario(pair):
        pair.server.pause_reading()
        pair.server.pause_reading()
        pair.client.send([b"hello"])
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert pair.at_server.data == b""
        pair.server.resume_reading()
        pair.server.resume_reading()
        await pair.at_server.until_bytes(5)

    world.run(scenario)


def test_a_failing_receiver_loses_its_own_link_alone(world, caplog):
    async def scenario(pair):
        def fail(count):
            raise BlockingIOError("a bug, and not one of the socket")

        network = world.network()
        other = (await Pair.connect(network)).start()
        broken = (await Pair.connect(network)).start()
        broken.server.close()
        third = await Pair.connect(network)
        bad = Recorder()
        bad.received = fail
        third.server.start(bad)
        watcher = Recorder()
        third.client.start(watcher)
        third.client.send([b"boom"])
        await bad.until_closed()
        await watcher.until_closed()
        assert [type(reason) for reason in bad.closings] == [BlockingIOError]
        other.client.send([b"still here"])
        await other.at_server.until_bytes(10)
        other.close()
        third.close()
        broken.close()

    world.run(scenario)
    assert "a bug, and not one of the socket" in caplog.text


@pytest.mark.parametrize(("buffer", "error"), [(bytearray(), ValueError), (b"read only", TypeError)])
def test_a_bad_buffer_is_the_receivers_fault_and_not_the_end(world, buffer, error):
    async def scenario(pair):
        pair.at_server._buffer = memoryview(buffer)
        pair.client.send([b"x"])
        await pair.at_server.until_closed()
        assert isinstance(pair.at_server.closings[0], error)

    world.run(scenario)


def test_a_range_that_was_truncated_away_ends_the_link_with_an_error(world):
    async def scenario(pair):
        file = world.file(b"0123456789")
        part = FileRange(file, 0, 10)
        file.truncate(4)
        pair.server.send([b"head", part])
        assert pair.at_server.closings == []
        await pair.at_server.until_closed()
        await pair.at_client.until_closed()
        assert isinstance(pair.at_server.closings[0], EOFError)
        assert file.pins == 0

    world.run(scenario)


def test_a_link_can_be_closed_from_inside_received(world):
    async def scenario(pair):
        extra = await Pair.connect(world.network())
        closing, watcher = Recorder(), Recorder()
        closing.received = lambda count: extra.server.close()
        extra.server.start(closing)
        extra.client.start(watcher)
        extra.client.send([b"x" * 100_000])
        await closing.until_closed()
        await watcher.until_closed()
        assert closing.closings == [None]
        extra.close()

    world.run(scenario)


def test_a_link_closed_before_its_start_is_told_after_it(world):
    async def main(pair):
        extra = await Pair.connect(world.network())
        extra.client.close()
        late = Recorder()
        extra.client.start(late)
        assert late.closings == []
        await late.until_closed()
        assert late.closings == [None]
        with pytest.raises(ValueError, match="already"):
            extra.client.start(late)
        extra.close()

    world.run(main)


def test_connecting_where_nobody_listens_is_refused(world):
    async def scenario(pair):
        network = world.network()
        listener = await network.listen("127.0.0.1", 0, lambda link: None)
        port = listener.port
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await network.connect("127.0.0.1", port)

    world.run(scenario)


def test_links_outlive_their_listener_and_the_port_is_free_again(world):
    async def scenario(pair):
        network = world.network()
        first = (await Pair.connect(network)).start()
        with pytest.raises(OSError, match="in use"):
            await network.listen("127.0.0.1", first.listener.port, lambda link: None)
        first.listener.close()
        again = await network.listen("127.0.0.1", first.listener.port, lambda link: None)
        first.client.send([b"still there"])
        await first.at_server.until_bytes(11)
        again.close()
        first.close()

    world.run(scenario)


def test_an_accept_that_fails_closes_that_connection_alone(world, caplog):
    async def scenario(pair):
        network = world.network()
        links = []

        seated = asyncio.Event()

        def accept(link):
            links.append(link)
            if len(links) == 1:
                raise RuntimeError("no seat")
            seated.set()

        listener = await network.listen("127.0.0.1", 0, accept)
        refused, welcome = Recorder(), Recorder()
        (await network.connect("127.0.0.1", listener.port)).start(refused)
        await refused.until_closed()
        second = await network.connect("127.0.0.1", listener.port)
        second.start(welcome)
        await asyncio.wait_for(seated.wait(), 10)
        links[1].send([b"hello"])
        await welcome.until_bytes(5)
        second.close()
        links[1].close()
        listener.close()

    world.run(scenario)
    assert "no seat" in caplog.text
