"""A TLS link keeps every promise of a Link, over real and simulated sockets, and lets nothing pass that is wrong."""

import asyncio
import ssl
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from network_peers import Pair, Recorder
from test_host_link_contract import (  # noqa: F401  the promises of any Link, here with TLS in between
    LOOPS,
    World,
    pattern,
    test_a_bad_buffer_is_the_receivers_fault_and_not_the_end,
    test_a_failing_receiver_loses_its_own_link_alone,
    test_a_link_can_be_closed_from_inside_received,
    test_a_link_closed_before_its_start_is_told_after_it,
    test_a_paused_reader_gets_nothing_until_it_resumes,
    test_a_range_that_was_truncated_away_ends_the_link_with_an_error,
    test_a_slow_reader_makes_the_sender_queue_and_drain_tells_the_end,
    test_a_small_buffer_is_filled_again_and_again,
    test_bytes_arrive_in_order_both_ways,
    test_close_when_sent_delivers_everything_although_the_peer_still_talks,
    test_close_when_sent_does_not_reset_a_peer_whose_bytes_were_not_read,
    test_close_when_sent_with_nothing_queued_ends_at_once,
    test_closing_drops_the_queue_and_releases_its_ranges,
    test_file_ranges_travel_between_bytes_and_are_released,
    test_nothing_waits_and_nothing_drains_when_the_socket_takes_all,
    test_sending_after_the_end_drops_and_releases,
    test_the_end_of_the_stream_is_told_once_after_the_last_byte,
)
from tls_peers import NODE, TlsNetwork, client_context, server_context

from semel.host import real_link
from semel.host.api import FileRange
from semel.host.tls_link import TlsLink


class TlsWorld(World):
    client = None
    server = None

    def network(self):
        return TlsNetwork(self.network_below(), self.client, self.server)

    def network_below(self):
        return super().network()

    def run_alone(self, scenario):
        with asyncio.Runner(loop_factory=LOOPS[self._kind]) as runner:
            runner.run(scenario())

    async def plain_pair(self):
        """Two connected links that TLS has yet to be put on: the client's and the server's."""
        pair = await Pair.connect(self.network_below())
        return pair, pair.client, pair.server


@pytest.fixture(params=LOOPS)
def world(request, tmp_path, monkeypatch):
    monkeypatch.setattr(real_link, "LINGER_S", 60)  # no test may pass because a link gave up waiting
    world = TlsWorld(request.param, tmp_path)
    yield world
    world.disk.close()


async def both_shake(pair, client, server):
    """Both sides' handshakes: the errors that they end with, or None."""
    return await asyncio.wait_for(asyncio.gather(client.handshake(), server.handshake(), return_exceptions=True), 20)


def secured(pair, client=None, server=None, name=NODE):
    return (
        TlsLink(pair.client, client or client_context(), server_hostname=name),
        TlsLink(pair.server, server or server_context(), server_hostname=None, server_side=True),
    )


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_ten_megabytes_go_both_ways_at_once(world, newest):
    world.client = client_context(newest=newest)
    content = pattern(10_000_000)[:10_000_000]

    async def scenario(pair):
        file = world.file(content)
        for start in range(0, 10_000_000, 2_500_000):
            pair.server.send([FileRange(file, start, 2_500_000)])
            pair.client.send([content[start : start + 1_000_000], content[start + 1_000_000 : start + 2_500_000]])
        await asyncio.gather(pair.at_client.until_bytes(10_000_000), pair.at_server.until_bytes(10_000_000))
        both_as_sent = pair.at_client.data == content and pair.at_server.data == content
        assert both_as_sent
        assert (pair.client.unsent_bytes, pair.server.unsent_bytes, file.pins) == (0, 0, 0)

    world.run(scenario)


def test_a_certificate_for_another_host_is_refused(world):
    async def scenario():
        pair, *_ = await world.plain_pair()
        client, server = secured(pair, name="somebody.else")
        refusal, _ = await both_shake(pair, client, server)
        assert isinstance(refusal, ssl.SSLCertVerificationError)
        assert "certificate of" in str(refusal)
        assert "Hostname mismatch" in str(refusal)
        late = Recorder()
        client.start(late)
        await late.until_closed()
        assert late.closings == [refusal]
        server.close()
        pair.close()

    world.run_alone(scenario)


def test_a_certificate_of_an_unknown_authority_is_refused_and_the_server_is_told(world):
    async def scenario():
        pair, *_ = await world.plain_pair()
        client, server = secured(pair, client_context(authority="stranger"))
        refusal, told = await both_shake(pair, client, server)
        assert isinstance(refusal, ssl.SSLCertVerificationError)
        assert isinstance(told, ssl.SSLError)
        assert "unknown ca" in str(told)
        pair.close()

    world.run_alone(scenario)


def test_a_server_that_wants_a_certificate_gets_it(world):
    world.client, world.server = client_context(with_certificate=True), server_context(wants_certificate=True)

    async def scenario(pair):
        subject = dict(part[0] for part in pair.server.peer_certificate()["subject"])
        assert subject["commonName"] == "client"
        pair.client.send([b"known"])
        await pair.at_server.until_bytes(5)

    world.run(scenario)


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_without_the_certificate_that_is_wanted_is_told(world, newest):
    async def scenario():
        pair, *_ = await world.plain_pair()
        client, server = secured(pair, client_context(newest=newest), server_context(wants_certificate=True))
        refusal, refused = await both_shake(pair, client, server)
        assert isinstance(refused, ssl.SSLError)
        if newest is ssl.TLSVersion.TLSv1_3:  # the client was done before the server looked
            assert refusal is None
            at_client = Recorder()
            client.start(at_client)
            client.send([b"anybody there?"])
            await at_client.until_closed()
            (refusal,) = at_client.closings
            assert "certificate required" in str(refusal)
        assert isinstance(refusal, ssl.SSLError)
        pair.close()

    world.run_alone(scenario)


def test_a_server_without_tls_is_told_apart_from_one_that_hangs_up(world):
    async def scenario():
        for answer, kind, words in (
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", ssl.SSLError, "does not speak TLS"),
            (None, ConnectionError, "perhaps it does not speak TLS"),
        ):
            pair, *_ = await world.plain_pair()
            client, _ = secured(pair)
            pair.server.start(Recorder())
            if answer is not None:
                pair.server.send([answer])
            pair.server.close_when_sent()
            with pytest.raises(kind, match=words):
                await asyncio.wait_for(client.handshake(), 20)
            pair.close()

    world.run_alone(scenario)


def test_a_handshake_that_is_cancelled_ends_the_connection(world):
    async def scenario():
        pair, *_ = await world.plain_pair()
        client, _ = secured(pair)
        silent = Recorder()
        pair.server.start(silent)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.handshake(), 0.05)
        await silent.until_closed()
        late = Recorder()
        client.start(late)
        await late.until_closed()
        assert late.closings == [None]
        pair.close()

    world.run_alone(scenario)


def test_a_connection_that_is_cut_in_the_handshake_is_an_error(world):
    async def scenario():
        pair, *_ = await world.plain_pair()
        client, _ = secured(pair)
        handshake = asyncio.get_running_loop().create_task(client.handshake())
        await asyncio.sleep(0.01)
        client.close()
        with pytest.raises(ConnectionError, match="closed during the TLS handshake"):
            await handshake
        with pytest.raises(ConnectionError, match="before the TLS handshake"):
            await client.handshake()
        pair.close()

    world.run_alone(scenario)


def test_links_in_numbers_live_and_die_without_leaving_anything(world):
    async def scenario():
        network = world.network()
        for _ in range(20):
            pair = (await Pair.connect(network)).start()
            pair.client.send([b"ping"])
            await pair.at_server.until_bytes(4)
            pair.server.send([b"pong"])
            pair.server.close_when_sent()
            await pair.at_client.until_closed()
            assert (bytes(pair.at_client.data), pair.at_client.closings) == (b"pong", [None])
            pair.close()
            await pair.at_server.until_closed()
            assert len(pair.at_server.closings) == 1

    world.run_alone(scenario)
