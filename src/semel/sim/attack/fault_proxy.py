"""A proxy between clients and brokers that understands frames, and lets faults happen to them.

Written against a host's Network, so it runs on real sockets and in the simulated world alike. Answers that name brokers
(Metadata, FindCoordinator, DescribeCluster, and hints of new leaders) are rewritten so that clients stay behind it:
every broker gets a door of its own, opened when it is first heard of. New versions and features can be hidden.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from semel.host.api import Host, Link, Listener
from semel.sim.attack.fault_answers import API_VERSIONS, denial, limited, needs_answer, refusal, staying_behind
from semel.sim.attack.fault_policy import Blow, Fault, Faults, Passing
from semel.wire.frame import read_request_header

READ_BYTES = 1 << 16
FRAMES_WAITING_MAX = 64
LOGGED_EVENTS = 2000
DRIPS = 7


class Witness(Protocol):
    """Sees what clients send, when it comes, and what they are answered."""

    def asked(self, request: Passing, frame: bytes) -> None: ...

    def answered(self, request: Passing) -> None: ...

    def ended(self, connection: int) -> None:
        """The connection to the client is no more."""


class BrokenProtocol(Exception):
    """What passed by is not what was to come."""


class Cut(Exception):
    """The passage is to be closed on both sides, now; but of one link, if it is given, after what was sent on it."""

    def __init__(self, gently: Link | None = None) -> None:
        self.gently = gently


class FrameReader:
    """The Receiver of one link: whole frames, length included, in order. A full queue stops the sender."""

    def __init__(self, link: Link, came: Callable[[bytes | None], None] | None = None) -> None:
        self.link = link
        self._came = came
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._data = bytearray()
        self._frames: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._is_ended = False
        self._is_paused = False

    def get_buffer(self) -> memoryview:
        return self._buffer

    def received(self, count: int) -> None:
        self._data += self._buffer[:count]
        while len(self._data) >= 4 and len(self._data) >= (end := 4 + int.from_bytes(self._data[:4], "big")):
            self._frames.append(bytes(self._data[:end]))
            del self._data[:end]
            self._news.set()
            if self._came is not None:
                self._came(self._frames[-1])
        if len(self._frames) >= FRAMES_WAITING_MAX and not self._is_paused:
            self._is_paused = True
            self.link.pause_reading()

    def drained(self) -> None:
        pass

    def closed(self, reason: BaseException | None) -> None:
        self._is_ended = True
        self._news.set()
        if self._came is not None:
            self._came(None)

    async def next_frame(self) -> bytes | None:
        """What came before the end is still given out; None is the end."""
        while not self._frames:
            if self._is_ended:
                return None
            self._news.clear()
            await self._news.wait()
        if self._is_paused and len(self._frames) < FRAMES_WAITING_MAX // 2:
            self._is_paused = False
            self.link.resume_reading()
        return self._frames.popleft()


class Awaited(NamedTuple):
    """An answer that the broker owes."""

    request: Passing
    blow: Blow | None
    is_swallowed: bool = False
    own_answer: bytes | None = None


class Passage:
    """One client's connection and the one to the broker that belongs to it."""

    def __init__(self, proxy: FaultProxy, number: int, client: Link, broker: Link) -> None:
        self._proxy = proxy
        self._number = number
        self._client = client
        self._broker = broker
        self._requests = FrameReader(client, self._witnessed if proxy.witness is not None else None)
        self._answers = FrameReader(broker)
        self._owed: deque[Awaited] = deque()
        self._is_answering = False

    async def run(self) -> None:
        self._client.start(self._requests)
        self._broker.start(self._answers)
        lanes = [asyncio.ensure_future(self._carry_requests()), asyncio.ensure_future(self._carry_answers())]
        try:
            done, _ = await asyncio.wait(lanes, return_when=asyncio.FIRST_COMPLETED)
            for lane in done:
                lane.result()
        except Cut as cut:
            for link in (self._client, self._broker):
                if link is not cut.gently:
                    link.close()
        finally:
            for lane in lanes:
                lane.cancel()
            await asyncio.gather(*lanes, return_exceptions=True)
        # What was sent before the end still arrives, as it would without a proxy.
        self._broker.close_when_sent()
        self._client.close_when_sent()

    # -- towards the broker

    def _passing(self, frame: bytes) -> Passing:
        header = read_request_header(memoryview(frame)[4:])
        return Passing(self._number, header.api_key, header.api_version, header.correlation_id)

    def _witnessed(self, frame: bytes | None) -> None:
        witness = self._proxy.witness
        if witness is not None and frame is not None:
            witness.asked(self._passing(frame), frame)
        elif witness is not None:
            witness.ended(self._number)

    async def _carry_requests(self) -> None:
        while (frame := await self._requests.next_frame()) is not None:
            passing = self._passing(frame)
            blow = self._proxy.faults.blow_for(passing)
            self._proxy.note(passing, blow)
            awaited = Awaited(passing, blow) if needs_answer(frame, passing) else None
            if blow is None:
                self._pass_on(frame, awaited)
            else:
                await self._strike(frame, blow, awaited)

    def _pass_on(self, frame: bytes, awaited: Awaited | None) -> None:
        if awaited is not None:
            self._owed.append(awaited)
        self._broker.send([frame])

    async def _strike(self, frame: bytes, blow: Blow, awaited: Awaited | None) -> None:
        fault = blow.fault
        if fault is Fault.CUT_BEFORE:
            raise Cut
        if fault is Fault.CUT_IN_REQUEST:
            self._broker.send([frame[: _cut_at(frame, blow)]])
            raise Cut(gently=self._broker)
        if fault is Fault.SWALLOW_REQUESTS:
            while await self._requests.next_frame() is not None:
                pass
            return
        if fault is Fault.LATE_REQUEST:
            self._client.close()
        if fault in (Fault.LATE_REQUEST, Fault.DELAY_REQUEST):
            with self._proxy.holding():
                await asyncio.sleep(blow.delay_s)
        if fault is Fault.REFUSE and awaited is not None:
            self._owed.append(awaited._replace(own_answer=refusal(frame, awaited.request)))
            self._answer_oneself()
            return
        if fault is Fault.DRIP_REQUEST:
            self._pass_on(b"", awaited)
            with self._proxy.holding():
                await _drip(self._broker, frame, blow.delay_s)
            return
        self._pass_on(frame, awaited)
        if fault is Fault.DUPLICATE:
            self._pass_on(frame, awaited._replace(is_swallowed=True) if awaited is not None else None)

    # -- towards the client

    def _answer_oneself(self) -> None:
        """Our own answers keep their place among those of the broker, also when one of those takes its time."""
        while not self._is_answering and self._owed and (answer := self._owed[0].own_answer) is not None:
            self._answer(self._owed.popleft().request, answer)

    async def _carry_answers(self) -> None:
        while (frame := await self._answers.next_frame()) is not None:
            if not self._owed:
                raise BrokenProtocol(f"the broker answered what was not asked: {frame[:40]!r}")
            owed = self._owed.popleft()
            self._is_answering = True
            correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
            if correlation_id != owed.request.correlation_id:
                raise BrokenProtocol(f"{owed.request} was next, not {correlation_id}")
            if not owed.is_swallowed:
                frame = await self._proxy.rewritten(frame, owed.request)
                if owed.blow is None:
                    self._answer(owed.request, frame)
                else:
                    await self._strike_answer(frame, owed.request, owed.blow)
            self._is_answering = False
            self._answer_oneself()

    async def _strike_answer(self, frame: bytes, request: Passing, blow: Blow) -> None:
        if blow.fault is Fault.CUT_AFTER:
            raise Cut
        if blow.fault is Fault.CUT_IN_ANSWER:
            self._client.send([frame[: _cut_at(frame, blow)]])
            raise Cut(gently=self._client)
        if blow.fault is Fault.SWALLOW_ANSWERS:
            while await self._answers.next_frame() is not None:
                pass
            return
        if blow.fault is Fault.DRIP_ANSWER:
            self._answer(request, b"")
            await _drip(self._client, frame, blow.delay_s)
            return
        if blow.fault is Fault.DELAY_ANSWER:
            await asyncio.sleep(blow.delay_s)
        if blow.fault is Fault.DENY:
            frame = denial(frame, request)
        self._answer(request, frame)

    def _answer(self, request: Passing, frame: bytes) -> None:
        if self._proxy.witness is not None:
            self._proxy.witness.answered(request)
        self._client.send([frame])


class FaultProxy:
    """`name` is the host under which clients reach it. Doors are opened by `open`, and by answers that name brokers."""

    def __init__(
        self,
        host: Host,
        faults: Faults,
        *,
        name: str = "127.0.0.1",
        version_limits: Mapping[int, int] | None = None,
        hidden_features: Iterable[str] = (),
    ) -> None:
        self.faults = faults
        self.log: deque[str] = deque(maxlen=LOGGED_EVENTS)
        self.failures: list[BaseException] = []
        self.witness: Witness | None = None
        """To be set before the first connection."""
        self._network = host.network
        self._name = name
        self._version_limits = dict(version_limits or {})
        self._hidden_features = frozenset(hidden_features)
        self._doors: dict[tuple[str, int], Listener] = {}
        self._opening = asyncio.Lock()
        self._passages: set[asyncio.Task[None]] = set()
        self._connections = 0
        self._held = 0
        self._nothing_held = asyncio.Event()
        self._nothing_held.set()

    async def open(self, host: str, port: int) -> str:
        """The address of the door to a broker."""
        name, door = await self._door(host, port)
        return f"{name}:{door}"

    async def close(self) -> None:
        for door in self._doors.values():
            door.close()
        for passage in list(self._passages):
            passage.cancel()
        await asyncio.gather(*self._passages, return_exceptions=True)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Meanwhile a request is held back, which goes on then, whatever has become of its client."""
        self._held += 1
        self._nothing_held.clear()
        try:
            yield
        finally:
            self._held -= 1
            if not self._held:
                self._nothing_held.set()

    async def until_passed(self) -> None:
        """All that was held back has gone on: what is sent from now on is not undone by what was sent before."""
        await self._nothing_held.wait()

    def report(self) -> str:
        """What it did, for the message of a test that fails."""
        return "\n".join(["the proxy's log:", *self.log])

    def check(self) -> None:
        """Raises what went wrong inside the proxy itself, or was sent against the protocol."""
        if self.failures:
            raise self.failures[0]

    # -- connections

    async def _door(self, host: str, port: int) -> tuple[str, int]:
        async with self._opening:
            if (host, port) not in self._doors:
                self._doors[host, port] = await self._network.listen(
                    self._name, 0, lambda client: self._accept(client, host, port)
                )
            return self._name, self._doors[host, port].port

    def _accept(self, client: Link, host: str, port: int) -> None:
        self._connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(self._connections, client, host, port))
        self._passages.add(task)
        task.add_done_callback(self._passages.discard)

    async def _serve(self, number: int, client: Link, host: str, port: int) -> None:
        self._write(f"#{number} opened towards {host}:{port}")
        broker: Link | None = None
        try:
            broker = await self._network.connect(host, port)
            await Passage(self, number, client, broker).run()
        except OSError as error:
            self._write(f"#{number} not connected: {error}")
        except Exception as error:
            self.failures.append(error)
            self._write(f"#{number} failed: {error!r}")
        except BaseException:
            if broker is not None:
                broker.close()
            client.close()
            raise
        else:
            self._write(f"#{number} closed")
            return
        client.close()
        if broker is not None:
            broker.close()

    def note(self, request: Passing, blow: Blow | None) -> None:
        what = f"#{request.connection} {request.name} v{request.version} ({request.correlation_id})"
        if blow is not None:
            what += f": {blow.fault.value} [{blow.delay_s:.3f} s, {blow.share:.2f}]"
        self._write(what)

    def _write(self, text: str) -> None:
        self.log.append(f"{asyncio.get_running_loop().time():10.4f} {text}")

    # -- answers that lead past the proxy

    async def rewritten(self, frame: bytes, request: Passing) -> bytes:
        if request.api_key == API_VERSIONS and (self._version_limits or self._hidden_features):
            return limited(frame, request, self._version_limits, self._hidden_features)
        return await staying_behind(frame, request, self._door)


def _cut_at(frame: bytes, blow: Blow) -> int:
    """At least one byte arrives, and at least one does not."""
    return 1 + int(blow.share * (len(frame) - 2))


async def _drip(link: Link, frame: bytes, over_s: float) -> None:
    step = max(1, len(frame) // DRIPS)
    for position in range(0, len(frame), step):
        link.send([frame[position : position + step]])
        await asyncio.sleep(over_s / DRIPS)
