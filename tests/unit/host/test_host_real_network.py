"""What is special to real sockets: resets, shares of a turn, descriptors running out, addresses."""

import asyncio
import errno
import fcntl
import gc
import os
import select
import socket
import struct
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from network_peers import Pair, Recorder

from semel.host import real_link, real_network
from semel.host.api import KEEPALIVE_S, FileRange
from semel.host.ready_links import ReadyLinks
from semel.host.real_disk import RealDisk
from semel.host.real_network import RealNetwork

SIOCOUTQNSD = 0x894B  # how much of what a socket has taken is not sent yet


@pytest.fixture
def run():
    return asyncio.run


def reset(link):
    """Close so that the peer sees a reset instead of an end."""
    link._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()


def test_a_reset_is_told_as_an_error_and_once(run):
    async def main():
        pair = (await Pair.connect(RealNetwork())).start()
        reset(pair.client)
        await pair.at_server.until_closed()
        assert [type(reason) for reason in pair.at_server.closings] == [ConnectionResetError]
        pair.close()
        await asyncio.sleep(0)
        assert len(pair.at_server.closings) == 1

    run(main())


def test_an_error_in_send_is_told_in_a_later_turn(run):
    async def main():
        pair = (await Pair.connect(RealNetwork())).start()
        pair.server.pause_reading()
        reset(pair.client)
        inside = []
        while not pair.at_server.closings:
            before = len(pair.at_server.closings)
            pair.server.send([b"into the void", b" in parts"])
            inside.append(len(pair.at_server.closings) - before)
            await asyncio.sleep(0)
        assert not any(inside)
        assert isinstance(pair.at_server.closings[0], ConnectionError)
        pair.close()

    run(main())


@pytest.mark.parametrize("is_compiled", [True, False])
def test_one_round_sends_no_more_than_its_share(run, monkeypatch, tmp_path, is_compiled):
    monkeypatch.setattr(real_link, "TURN_BYTES", 10_000)
    if not is_compiled:
        monkeypatch.setattr(real_link, "RangeSender", None)
    left = []
    serve_round = ReadyLinks._serve_round

    async def main():
        disk = RealDisk()
        file = disk.open(str(tmp_path / "a"), create=True)
        file.write_at(0, bytes(100_000))
        pair = (await Pair.connect(RealNetwork())).start()

        def counted(ready_links):
            found = serve_round(ready_links)
            sender = pair.server._sender
            left.append(pair.server.unsent_bytes - (0 if sender is None else sender.head_sent + sender.sent))
            return found

        monkeypatch.setattr(ReadyLinks, "_serve_round", counted)
        pair.server.send([b"head", FileRange(file, 0, 100_000)])
        sender = pair.server._sender
        left.append(pair.server.unsent_bytes - (0 if sender is None else sender.head_sent + sender.sent))
        await pair.at_client.until_bytes(100_004)
        pair.close()
        disk.close()

    run(main())
    assert left[0] >= 90_000
    assert max(before - after for before, after in pairwise(left)) <= 10_000
    assert left[-1] == 0


def test_a_small_answer_is_one_packet_and_one_read(run, tmp_path):
    async def main():
        disk = RealDisk()
        file = disk.open(str(tmp_path / "a"), create=True)
        file.write_at(0, bytes(1000))
        pair = (await Pair.connect(RealNetwork())).start()
        spy = Spy(pair.server)
        pair.server.send([b"length", b"header", FileRange(file, 0, 1000), b"between", FileRange(file, 0, 10), b"after"])
        assert file.pins == 0, "the ranges are released"
        await pair.at_client.until_bytes(1034)
        assert (pair.at_client.calls, spy.flags, spy.sent) == (1, [], [1034])
        pair.close()
        disk.close()

    run(main())


def test_behind_what_waits_for_its_reader_a_small_range_is_no_burden_on_memory(run, tmp_path):
    async def main():
        disk = RealDisk()
        file = disk.open(str(tmp_path / "a"), create=True)
        file.write_at(0, b"x" * 1000)
        pair = (await Pair.connect(RealNetwork())).start()
        pair.client.pause_reading()
        pair.server.send([bytes(50_000_000)])
        before = pair.server.unsent_bytes
        pair.server.send([b"head", FileRange(file, 0, 1000), b"tail"])
        assert before > 0
        assert (pair.server.unsent_bytes, file.pins) == (before + 1008, 1)
        pair.client.resume_reading()
        await pair.at_client.until_bytes(50_001_008)
        assert bytes(pair.at_client.data[-1008:]) == b"head" + b"x" * 1000 + b"tail"
        assert file.pins == 0
        pair.close()
        disk.close()

    run(main())


class Spy:
    """Stands before a link's socket and notes the flags of what is sent in parts, the size of what is sent alone."""

    def __init__(self, link):
        self._socket = link._socket
        self.flags = []
        self.sent = []
        link._socket = self
        link._send_bytes = self.send

    def __getattr__(self, name):
        return getattr(self._socket, name)

    def sendmsg(self, parts, ancillary, flags):
        self.flags.append(flags)
        return self._socket.sendmsg(parts, ancillary, flags)

    def send(self, part):
        self.sent.append(len(part))
        return self._socket.send(part)


def test_bytes_before_a_range_wait_for_it_and_bytes_after_it_do_not(run, monkeypatch, tmp_path):
    monkeypatch.setattr(real_link, "RangeSender", None)

    async def main():
        disk = RealDisk()
        file = disk.open(str(tmp_path / "a"), create=True)
        file.write_at(0, bytes(100_000))
        pair = (await Pair.connect(RealNetwork())).start()
        spy = Spy(pair.server)
        pair.server.send([b"head", FileRange(file, 0, 100_000), b"tail", b"end"])
        await pair.at_client.until_bytes(100_011)
        assert spy.flags == [socket.MSG_MORE, 0]
        pair.close()
        disk.close()

    run(main())


def test_a_small_message_costs_one_read(run):
    async def main():
        pair = (await Pair.connect(RealNetwork())).start()
        for number in range(1, 6):
            pair.client.send([b"x" * 100])
            await pair.at_server.until_bytes(100 * number)
        assert pair.at_server.buffers == 5
        pair.close()

    run(main())


def test_only_ranges_of_real_files_can_be_sent(run):
    class OtherFile:
        path = "other"

        def pin(self):
            pass

        def unpin(self):
            pass

    async def main():
        pair = (await Pair.connect(RealNetwork())).start()
        pair.server.send([FileRange(OtherFile(), 0, 5)])
        await pair.at_server.until_closed()
        assert isinstance(pair.at_server.closings[0], TypeError)
        pair.close()

    run(main())


def test_running_out_of_descriptors_pauses_the_listener_without_spinning(run, monkeypatch, caplog):
    monkeypatch.setattr(real_network, "PAUSE_S", 0.02)

    async def main():
        attempts = []
        started = time.monotonic()
        accepting = asyncio.get_running_loop().create_future()
        listener = await RealNetwork().listen("127.0.0.1", 0, accepting.set_result)
        listening = listener._sockets[0]

        class Refusing:
            def fileno(self):
                return listening.fileno()

            def accept(self):
                attempts.append(1)
                if time.monotonic() < started + 0.05:
                    raise OSError(errno.EMFILE, "too many open files")
                return listening.accept()

            def close(self):
                listening.close()

        loop = asyncio.get_running_loop()
        loop.remove_reader(listening.fileno())
        listener._sockets = [Refusing()]
        listener._watch(listener._sockets[0])
        link = await RealNetwork().connect("127.0.0.1", listener.port)
        accepted = await asyncio.wait_for(accepting, 10)
        assert 2 <= len(attempts) <= 6  # some refusals, one connection, one look whether there is another
        link.close()
        accepted.close()
        listener.close()

    run(main())
    assert "too many open files" in caplog.text


def test_a_closed_listener_does_not_wake_from_its_pause(run, monkeypatch):
    monkeypatch.setattr(real_network, "PAUSE_S", 0.005)

    async def main():
        listener = await RealNetwork().listen("127.0.0.1", 0, lambda link: None)
        listener._pause(listener._sockets[0], OSError(errno.EMFILE, "too many open files"))
        listener.close()
        await asyncio.sleep(0.02)

    run(main())


def test_hundreds_of_connections_are_accepted(run):
    async def main():
        accepted, all_there = [], asyncio.Event()

        def accept(link):
            accepted.append(link)
            if len(accepted) == 200:
                all_there.set()

        listener = await RealNetwork().listen("127.0.0.1", 0, accept)
        links = await asyncio.gather(*(RealNetwork().connect("127.0.0.1", listener.port) for _ in range(200)))
        await asyncio.wait_for(all_there.wait(), 10)
        assert sorted(link.peer for link in accepted) == sorted(
            "{}:{}".format(*link._socket.getsockname()) for link in links
        )
        assert all(link._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for link in links + accepted)
        for link in links + accepted:
            link.close()
        listener.close()

    run(main())


def test_a_peer_that_is_gone_without_a_word_is_found_out_by_keepalive(run):
    async def main():
        pair = await Pair.connect(RealNetwork())
        for link in (pair.client, pair.server):
            assert link._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            idle_s, interval_s, probes = (
                link._socket.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            assert (idle_s, interval_s, probes) == (30, 10, 3)
            assert idle_s + interval_s * probes == KEEPALIVE_S
        pair.close()

    run(main())


def test_names_are_resolved_and_every_address_shares_the_port(run):
    async def main():
        accepted = []
        listener = await RealNetwork().listen("localhost", 0, accepted.append)
        assert len({listening.getsockname()[1] for listening in listener._sockets}) == 1
        link = await RealNetwork().connect("localhost", listener.port)
        assert link.peer.endswith(f":{listener.port}")
        link.close()
        listener.close()
        with pytest.raises(OSError, match=r"."):
            await RealNetwork().connect("no-such-host.invalid", 1)

    run(main())


def test_a_cancelled_connect_closes_its_socket(run, recwarn):
    async def main():
        task = asyncio.ensure_future(RealNetwork().connect("192.0.2.1", 9))  # an address that never answers
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises((asyncio.CancelledError, OSError)):
            await task

    gc.collect()  # what others have left open
    recwarn.clear()
    run(main())
    assert not [warning for warning in recwarn if issubclass(warning.category, ResourceWarning)]


def test_a_peer_that_never_closes_is_left_after_a_moment(run, monkeypatch):
    monkeypatch.setattr(real_link, "LINGER_S", 0.02)

    async def main():
        pair = (await Pair.connect(RealNetwork())).start()
        pair.client.pause_reading()
        pair.server.close_when_sent()
        await pair.at_server.until_closed()
        assert pair.at_server.closings == [None]
        pair.close()

    run(main())


def test_a_full_buffer_is_read_again_in_the_same_event_but_not_for_ever(run):
    async def main():
        pair = await Pair.connect(RealNetwork())
        pair.client.send([bytes(1000)])
        await asyncio.sleep(0.01)
        reader = Recorder(10)
        pair.server.start(reader)
        pair.server._readable()
        assert len(reader.data) == 10 * real_link.READS_PER_EVENT
        await reader.until_bytes(1000)
        pair.close()

    run(main())


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("peer_talks", [True, False])
def test_what_follows_a_range_leaves_with_its_end_and_the_socket_is_not_corked_afterwards(
    run, monkeypatch, tmp_path, is_compiled, peer_talks
):
    if not is_compiled:
        monkeypatch.setattr(real_link, "RangeSender", None)

    async def main():
        disk = RealDisk()
        file = disk.open(str(tmp_path / "a"), create=True)
        file.write_at(0, os.urandom(3_000_000))
        pair = await Pair.connect(RealNetwork(20_000))
        pair.start()
        expected = b""
        # Out of so small a buffer the system sends when the last is acknowledged, and who has nothing to say is late.
        for length in (1_000_000, 1_000_001, 65_483, 3_000_000) if peer_talks else (100_000, 100_001, 65_483):
            for answer in range(3):  # the later ones wait behind the first
                parts = [b"head %d" % answer, FileRange(file, 0, length), b"\0" * (answer + 1), b"and more"]
                expected += b"".join(file.read_at(0, length) if type(part) is FileRange else part for part in parts)
                pair.server.send(parts[: 3 + answer % 2])
                expected = expected if answer % 2 else expected[: -len(b"and more")]
            while len(pair.at_client.data) < len(expected):
                if peer_talks:  # so that the server's link has more to do than to send
                    pair.client.send([b"."])
                await asyncio.sleep(0)
            assert pair.at_client.data == expected
            await pair.at_server.until(lambda _: pair.server.unsent_bytes == 0)
            assert pair.server._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK) == 0
            assert file.pins == 0
        pair.close()
        disk.close()

    run(main())


@pytest.mark.skipif(real_link.RangeSender is None, reason="only rounds that are compiled cork a socket")
def test_a_range_that_the_link_takes_back_from_the_round_is_corked_no_more(run, tmp_path):
    async def main():
        disk = RealDisk()
        file = disk.open(str(tmp_path / "a"), create=True)
        file.write_at(0, os.urandom(1_000_000))
        pair = await Pair.connect(RealNetwork(20_000))
        pair.start()
        connected = pair.server._socket
        pair.server.send([b"head", FileRange(file, 0, 1_000_000), b"tail"])

        def is_corked(_):
            return connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK)

        await pair.at_client.until(is_corked)
        assert pair.server.unsent_bytes
        pair.server.ready(select.EPOLLIN | select.EPOLLOUT)
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK) == 0
        await pair.at_client.until_bytes(1_000_008)
        assert pair.at_client.data == b"head" + file.read_at(0, 1_000_000) + b"tail"
        pair.close()
        disk.close()

    run(main())


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("left_bytes", [0, 10, 100_000, 900_000])
def test_a_range_whose_file_was_cut_meanwhile_ends_the_link(run, monkeypatch, tmp_path, is_compiled, left_bytes):
    if not is_compiled:
        monkeypatch.setattr(real_link, "RangeSender", None)

    async def main():
        disk = RealDisk()
        file = disk.open(str(tmp_path / "a"), create=True)
        file.write_at(0, os.urandom(1_000_000))
        pair = await Pair.connect(RealNetwork(20_000))
        pair.start()
        part = FileRange(file, 0, 1_000_000)
        os.truncate(tmp_path / "a", left_bytes)
        pair.server.send([b"head", part, b"tail"])
        await pair.at_server.until_closed()
        assert file.pins == 0
        pair.close()
        disk.close()

    run(main())


@pytest.mark.skipif(real_link.RangeSender is None, reason="only rounds that are compiled send it so")
@pytest.mark.parametrize("position", [0, 1, 4095, 4096, 70_000])
def test_the_first_packet_of_a_range_is_sent_by_itself_and_ends_where_a_page_ends(run, tmp_path, position):
    async def main():
        disk = RealDisk()
        file = disk.open(str(tmp_path / "a"), create=True)
        file.write_at(0, os.urandom(1_000_000))
        first = 16 * 4096 - position % 4096
        waiting = set()
        for _ in range(5):  # the system holds back for a fifth of a second what is corked
            pair = await Pair.connect(RealNetwork(1_000_000))
            sender = real_link.RangeSender(pair.server._fd, b"head", file.fd, position, 500_000, b"tail", first + 10)
            assert not sender.begin()
            waiting.add(int.from_bytes(fcntl.ioctl(pair.server._fd, SIOCOUTQNSD, bytes(4)), sys.byteorder))
            assert sender.sent == first + 10
            sender.end()
            pair.start()
            await pair.at_client.until_bytes(4 + sender.sent)
            assert pair.at_client.data == b"head" + file.read_at(position, sender.sent)
            pair.close()
        assert 10 in waiting
        disk.close()

    run(main())
