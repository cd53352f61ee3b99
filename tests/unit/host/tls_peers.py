"""For the tests of TLS links: contexts with the test certificates, a network of TLS links, a link that is watched."""

import asyncio
import ssl
from pathlib import Path

from semel.host.api import FileRange
from semel.host.tls_link import TlsLink

CERTIFICATES = Path(__file__).parents[2] / "certificates"
NODE = "node"  # a name in the broker's certificate, and that of the simulated node


def client_context(*, authority="ca", with_certificate=False, newest=ssl.TLSVersion.TLSv1_3):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(CERTIFICATES / f"{authority}.pem")
    context.maximum_version = newest
    if with_certificate:
        context.load_cert_chain(CERTIFICATES / "client.pem", CERTIFICATES / "client.key")
    return context


def server_context(*, wants_certificate=False):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "broker.pem", CERTIFICATES / "broker.key")
    if wants_certificate:
        context.load_verify_locations(CERTIFICATES / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class TlsNetwork:
    """Another network, with TLS on every connection; links are handed out after their handshake."""

    def __init__(self, below, client=None, server=None):
        self._below = below
        self.most_connections = below.most_connections
        self._client = client or client_context()
        self._server = server or server_context()
        self._handshakes = set()

    async def listen(self, host, port, accept):
        async def shake(link):
            secured = TlsLink(link, self._server, server_hostname=None, server_side=True)
            await secured.handshake()
            accept(secured)

        def accept_below(link):
            handshake = asyncio.get_running_loop().create_task(shake(link))
            self._handshakes.add(handshake)
            handshake.add_done_callback(self._handshakes.discard)

        return await self._below.listen(host, port, accept_below)

    async def connect(self, host, port):
        link = TlsLink(await self._below.connect(host, port), self._client, server_hostname=NODE)
        await link.handshake()
        return link


class WatchedLink:
    """A link in memory with `room` for bytes: what it cannot take waits. Reads nothing by itself: see `feed`."""

    def __init__(self, room=1 << 40):
        self.peer = "peer:1"
        self.room = room
        self.taken = bytearray()
        self.waiting = bytearray()
        self.most_unsent_bytes = 0
        self.is_paused = False
        self.endings = []
        self._receiver = None

    @property
    def unsent_bytes(self):
        return len(self.waiting)

    def start(self, receiver):
        self._receiver = receiver

    def send(self, parts):
        if self.endings:
            return
        for part in parts:
            assert not isinstance(part, FileRange)
            self.waiting += part
        self._take()
        self.most_unsent_bytes = max(self.most_unsent_bytes, self.unsent_bytes)

    def _take(self):
        count = min(self.room - len(self.taken), len(self.waiting))
        self.taken += self.waiting[:count]
        del self.waiting[:count]

    def make_room(self, count):
        had_waiting = bool(self.waiting)
        self.room = len(self.taken) + count
        self._take()
        if had_waiting and not self.waiting:
            self._receiver.drained()

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False

    def feed(self, data):
        """Bytes from the peer."""
        data = memoryview(data)
        while data and not self.endings:
            buffer = self._receiver.get_buffer()
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            data = data[count:]
            self._receiver.received(count)

    def peer_ends(self, reason=None):
        self._receiver.closed(reason)

    def close(self):
        self.endings.append("close")
        self.waiting.clear()

    def close_when_sent(self):
        self.endings.append("close_when_sent")


class Opposite:
    """The other side of a WatchedLink, driven by hand: Python's own SSLObject."""

    def __init__(self, link, server_side, context=None):
        self._link = link
        self._read = 0
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.context = context or (server_context() if server_side else client_context())
        self.tls = self.context.wrap_bio(
            self.incoming, self.outgoing, server_side=server_side, server_hostname=None if server_side else NODE
        )

    def listen(self):
        """What the other side has sent since the last time."""
        self.incoming.write(self._link.taken[self._read :])
        self._read = len(self._link.taken)

    def talk(self):
        if self.outgoing.pending:
            self._link.feed(self.outgoing.read())

    def shake(self):
        self.listen()
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
        self.talk()

    def read(self):
        """Everything that can be read; and whether the other side has said farewell."""
        self.listen()
        data = bytearray()
        while True:
            try:
                piece = self.tls.read(1 << 20)
            except ssl.SSLWantReadError:
                return bytes(data), False
            except ssl.SSLZeroReturnError:
                return bytes(data), True
            if not piece:
                return bytes(data), True
            data += piece

    def say(self, data):
        self.tls.write(data)
        self.talk()


async def watched(room=1 << 40, *, server_side=False):
    """A TLS link after its handshake, the link below it, and the other side."""
    below = WatchedLink()
    context = server_context() if server_side else client_context()
    link = TlsLink(below, context, server_hostname=None if server_side else NODE, server_side=server_side)
    handshake = asyncio.get_running_loop().create_task(link.handshake())
    await asyncio.sleep(0)
    opposite = Opposite(below, not server_side)
    for _ in range(6):
        opposite.shake()
        if handshake.done():
            break
        await asyncio.sleep(0)
    await handshake
    opposite.shake()
    below.room = len(below.taken) + room
    return link, below, opposite
