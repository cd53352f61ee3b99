"""A TLS link by hand: with the link below and the other side in sight, turn by turn."""

import asyncio
import itertools
import logging
import ssl
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from network_peers import Recorder
from test_host_link_contract import pattern
from tls_peers import NODE, Opposite, WatchedLink, client_context, server_context, watched

from semel.host import tls_link
from semel.host.api import FileRange
from semel.host.tls_link import MOVES, State, TlsLink
from semel.sim.disk import SimDisk
from semel.sim.loop import run as run_simulated


def simulated(scenario):
    def run():
        run_simulated(scenario())

    run.__name__ = scenario.__name__
    return run


@simulated
async def test_the_server_side_works_the_same_way():
    link, _, opposite = await watched(server_side=True)
    recorder = Recorder()
    link.start(recorder)
    opposite.say(b"request")
    await recorder.until_bytes(7)
    link.send([b"ans", b"wer"])
    assert opposite.read() == (b"answer", False)


@simulated
async def test_nothing_is_delivered_before_the_start():
    link, below, opposite = await watched()
    assert below.is_paused
    opposite.tls.write(b"early")
    below.feed(opposite.outgoing.read())
    for _ in range(5):
        await asyncio.sleep(0)
    recorder = Recorder()
    link.start(recorder)
    assert not recorder.data  # not from inside start
    await recorder.until_bytes(5)
    assert not below.is_paused


@simulated
async def test_no_flipped_bit_ever_passes():
    for seed in range(60):
        link, below, opposite = await watched()
        recorder = Recorder()
        link.start(recorder)
        await asyncio.sleep(0)
        opposite.tls.write(b"first ")
        opposite.tls.write(b"second")
        record = bytearray(opposite.outgoing.read())
        place = (seed * len(record)) // 60
        record[place] ^= 1 << seed % 8
        below.feed(record)
        for _ in range(3):
            await asyncio.sleep(0)
        # A length that was made larger is found out when the bytes for it have come, or never have.
        below.feed(bytes(70_000))
        await recorder.until_closed()
        assert recorder.data in (b"", b"first ")
        (reason,) = recorder.closings
        assert isinstance(reason, ssl.SSLError)
        assert below.endings == ["close_when_sent"]  # the alert for the peer goes out first


@simulated
async def test_ciphertext_waits_in_a_bounded_amount_and_file_ranges_are_read_in_pieces():
    link, below, opposite = await watched(room=0)
    recorder = Recorder()
    link.start(recorder)
    disk = SimDisk(1)
    file = disk.open("/file", create=True)
    content = pattern(5_000_000)[:5_000_000]
    file.write_at(0, content)
    lengths = []
    read_at = file.read_at
    file.read_at = lambda position, length: lengths.append(length) or read_at(position, length)
    link.send([b"head", FileRange(file, 0, 5_000_000)])
    link.send([b"tail"])
    assert link.unsent_bytes >= 5_000_008
    received = bytearray()
    for step in itertools.count():
        assert below.unsent_bytes <= tls_link.MOST_CIPHERTEXT_BYTES + tls_link.PIECE_BYTES + 1000
        received += opposite.read()[0]
        # Encrypted or not, every byte is either with the peer (perhaps in half a record) or counted.
        assert -17_000 < link.unsent_bytes - (5_000_008 - len(received)) < 2_000
        if len(received) == 5_000_008:
            break
        assert step < 1000
        below.make_room(100_000)
        await asyncio.sleep(0)
    as_sent = bytes(received) == b"head" + content + b"tail"
    assert as_sent
    assert max(lengths) <= tls_link.PIECE_BYTES
    assert (file.pins, link.unsent_bytes, recorder.drains) == (0, 0, 1)
    assert below.most_unsent_bytes <= tls_link.MOST_CIPHERTEXT_BYTES + tls_link.PIECE_BYTES + 1000


@simulated
async def test_one_turn_encrypts_no_more_than_its_share_and_drained_comes_after_the_last():
    link, below, opposite = await watched()
    recorder = Recorder()
    link.start(recorder)
    content = pattern(5_000_000)[:5_000_000]
    before = len(below.taken)
    link.send([content])
    assert len(below.taken) - before <= tls_link.TURN_BYTES + tls_link.PIECE_BYTES + 40_000
    assert recorder.drains == 0
    sent_in_one_turn = len(below.taken)
    link.send([b"end"])
    assert len(below.taken) == sent_in_one_turn
    await recorder.until(lambda recorder: recorder.drains)
    assert link.unsent_bytes == 0
    as_sent = opposite.read()[0] == content + b"end"
    assert as_sent
    assert recorder.drains == 1


@simulated
async def test_small_parts_share_a_record():
    link, below, opposite = await watched()
    before = len(below.taken)
    link.send([b"a"] * 100)
    assert len(below.taken) - before < 200
    assert opposite.read()[0] == b"a" * 100


@simulated
async def test_parts_that_end_near_the_end_of_a_piece_lose_nothing():
    link, _, opposite = await watched()
    sizes = [tls_link.PIECE_BYTES + difference for difference in (-1, 0, 1, -1, 1)]
    parts = [bytes([number]) * size for number, size in enumerate(sizes)]
    link.send([*parts, b"", b"end"])
    for part in parts:
        link.send([part])
    as_sent = opposite.read()[0] == b"".join(parts) + b"end" + b"".join(parts)
    assert as_sent


@simulated
async def test_drained_is_told_once_for_what_had_to_wait_and_never_otherwise():
    link, below, _ = await watched()
    recorder = Recorder()
    link.start(recorder)
    await asyncio.sleep(0)
    link.send([b"taken at once"])
    link.ciphertext_drained()  # as for something that TLS had to say for itself
    assert recorder.drains == 0
    below.room = len(below.taken)
    link.send([b"must wait"])
    assert link.unsent_bytes > 0
    below.make_room(1000)
    assert recorder.drains == 1
    link.ciphertext_drained()
    assert recorder.drains == 1


@simulated
async def test_a_receiver_that_pauses_gets_the_rest_after_it_resumes_and_before_anything_newer():
    link, below, opposite = await watched()
    recorder = Recorder(1000)
    take = recorder.received

    def pause_at_once(count):
        take(count)
        link.pause_reading()

    recorder.received = pause_at_once
    link.start(recorder)
    await asyncio.sleep(0)
    content = pattern(9_500)[:9_500]
    opposite.say(content)
    assert len(recorder.data) == 1000
    for number in range(2, 11):
        assert below.is_paused
        link.resume_reading()
        assert len(recorder.data) == 1000 * (number - 1)  # not from inside resume_reading
        await asyncio.sleep(0)
        assert len(recorder.data) == min(1000 * number, 9_500)
    assert recorder.data == content
    link.resume_reading()
    await asyncio.sleep(0)
    assert not below.is_paused


@simulated
async def test_an_end_without_farewell_is_a_clean_end_and_an_error_stays_one():
    for reason in (None, ConnectionResetError("gone")):
        link, below, opposite = await watched()
        recorder = Recorder()
        link.start(recorder)
        await asyncio.sleep(0)
        opposite.say(b"last")
        below.peer_ends(reason)
        await recorder.until_closed()
        assert (recorder.data, recorder.closings) == (b"last", [reason])


@simulated
async def test_the_peers_farewell_is_the_end():
    link, below, opposite = await watched()
    recorder = Recorder()
    link.start(recorder)
    await asyncio.sleep(0)
    opposite.tls.write(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        opposite.tls.unwrap()
    opposite.talk()
    assert recorder.closings == []  # told in a turn of its own
    await recorder.until_closed()
    below.peer_ends()
    await asyncio.sleep(0)
    assert (recorder.data, recorder.closings) == (b"last", [None])
    assert below.endings[0] == "close"
    assert opposite.read() == (b"", True)  # and the farewell is answered


@simulated
async def test_close_when_sent_ends_with_a_farewell_after_everything_that_was_queued():
    link, below, opposite = await watched(room=0)
    recorder = Recorder()
    link.start(recorder)
    await asyncio.sleep(0)
    content = pattern(2_000_000)[:2_000_000]
    link.send([content])
    link.pause_reading()
    link.close_when_sent()
    link.send([b"too late"])
    assert not below.is_paused
    assert below.endings == []
    opposite.say(b"nobody wants to know")
    while not below.endings:
        below.make_room(300_000)
        await asyncio.sleep(0)
    below.make_room(300_000)
    assert below.endings == ["close_when_sent"]
    received, has_ended = opposite.read()
    as_sent = received == content
    assert as_sent
    assert has_ended
    assert recorder.closings == []
    below.peer_ends()
    await recorder.until_closed()
    assert (recorder.data, recorder.closings) == (b"", [None])


@simulated
async def test_close_says_farewell_only_if_nothing_was_dropped():
    link, _, opposite = await watched()
    link.send([b"whole"])
    link.close()
    assert opposite.read() == (b"whole", True)
    link, _, opposite = await watched()
    link.send([pattern(5_000_000)[:5_000_000]])
    link.close()
    received, has_ended = opposite.read()
    assert 0 < len(received) < 5_000_000
    assert not has_ended


@simulated
async def test_encryption_that_must_wait_for_the_peer_goes_on_when_it_has_answered():
    """As in a TLS 1.2 peer's demand for new keys, which Python's own TLS cannot be made to utter."""
    link, _, opposite = await watched()
    link.start(Recorder())
    await asyncio.sleep(0)

    class Hesitant:
        has_waited = False

        def write(self, data):
            if not self.has_waited:
                self.has_waited = True
                raise ssl.SSLWantReadError
            return real.write(data)

        def __getattr__(self, name):
            return getattr(real, name)

    real, link._tls = link._tls, Hesitant()
    link.send([b"patience"])
    assert link.unsent_bytes == 8
    assert opposite.read()[0] == b""
    opposite.say(b"go on")
    assert opposite.read()[0] == b"patience"
    assert link.unsent_bytes == 0


@simulated
async def test_a_bug_in_a_receiver_that_looks_like_tls_waiting_ends_the_link():
    logging.getLogger("semel.host.tls_link").disabled = True
    for broken in ("received", "drained"):
        link, below, opposite = await watched(room=0)
        recorder = Recorder()

        def fail(*_):
            raise ssl.SSLWantReadError("a bug, and not one of TLS")

        setattr(recorder, broken, fail)
        link.start(recorder)
        await asyncio.sleep(0)
        link.send([b"x"])
        opposite.say(b"x")
        below.make_room(1000)
        await recorder.until_closed()
        assert [type(reason) for reason in recorder.closings] == [ssl.SSLWantReadError]
    logging.getLogger("semel.host.tls_link").disabled = False


@simulated
async def test_what_comes_before_the_handshake_is_refused():
    link = TlsLink(WatchedLink(), client_context(), server_hostname=NODE)
    with pytest.raises(ValueError, match="after its handshake"):
        link.start(Recorder())
    with pytest.raises(ValueError, match="after its handshake"):
        link.send([b"in the clear?"])
    link.close_when_sent()
    link, *_ = await watched()
    with pytest.raises(ValueError, match="OPEN cannot become SHAKING"):
        await link.handshake()


@simulated
async def test_a_client_that_offers_only_old_tls_is_refused():
    context = server_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    below = WatchedLink()
    link = TlsLink(below, context, server_hostname=None, server_side=True)
    handshake = asyncio.get_running_loop().create_task(link.handshake())
    await asyncio.sleep(0)
    Opposite(below, False, client_context(newest=ssl.TLSVersion.TLSv1_2)).shake()
    with pytest.raises(ssl.SSLError, match="unsupported protocol"):
        await handshake


def test_the_table_of_moves_leads_every_state_to_its_end():
    assert set(MOVES) == set(State)
    assert all(State.ENDED in MOVES[state] for state in State if state is not State.ENDED)
    assert MOVES[State.ENDED] == frozenset()
    assert all(state not in MOVES[state] for state in State)
