"""Receivers for the tests of links: one that records, and a pair of connected links."""

import asyncio


class Recorder:
    """Records what its link tells it, and lets a test wait for it."""

    def __init__(self, buffer_bytes=65536):
        self.data = bytearray()
        self.closings = []
        self.drains = 0
        self.calls = 0
        self.buffers = 0
        self._buffer = memoryview(bytearray(buffer_bytes))
        self._changed = asyncio.Event()

    def get_buffer(self):
        self.buffers += 1
        return self._buffer

    def received(self, count):
        self.calls += 1
        self.data += self._buffer[:count]
        self._changed.set()

    def drained(self):
        self.drains += 1
        self._changed.set()

    def closed(self, reason):
        self.closings.append(reason)
        self._changed.set()

    async def until(self, condition):
        async with asyncio.timeout(20):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()

    async def until_bytes(self, count):
        await self.until(lambda recorder: len(recorder.data) >= count)

    async def until_closed(self):
        await self.until(lambda recorder: recorder.closings)


class Pair:
    """A listener, and a connection to it: `client` and `server` are links, not started yet."""

    @classmethod
    async def connect(cls, network, port=0):
        pair = cls()
        accepted = asyncio.get_running_loop().create_future()
        pair.listener = await network.listen("127.0.0.1", port, accepted.set_result)
        pair.client = await network.connect("127.0.0.1", pair.listener.port)
        pair.server = await accepted
        return pair

    def start(self, client_buffer=65536, server_buffer=65536):
        self.at_client, self.at_server = Recorder(client_buffer), Recorder(server_buffer)
        self.client.start(self.at_client)
        self.server.start(self.at_server)
        return self

    def close(self):
        self.listener.close()
        self.client.close()
        self.server.close()
