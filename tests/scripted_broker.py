"""Brokers that do what a test tells them, on the simulated network: for tests of the client alone, in virtual time.

Left alone they behave: topics are where the test put them, batches are taken in order of sequence. A rule for a kind of
request replaces that; `hold` keeps the requests of a kind, for the test to answer, refuse or cut off one by one. A test
fails when a callback raised in the loop, and when a task is left over.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from scripted_answers import DEFAULTS, Logs, Sent, Topic, produce_answer, refused, sent_in
from semel.client.producer.producer import Producer
from semel.client.settings import ConnectionSettings, load
from semel.host.api import Host, Link
from semel.sim.host import SimWorld
from semel.sim.loop import SimLoop, run
from semel.wire.apis import API, request_class
from semel.wire.codec import decoder
from semel.wire.frame import read_request_header, response_parts
from semel.wire.schema import Request, Response
from semel.wire.spec.produce import ProduceRequest

R = TypeVar("R", bound=Request)
Rule = Callable[["Asked"], Response | None]
"""The answer to a request; None if the test answers itself, or not at all."""

END_S = 3600.0 * 24
PATIENCE_S = 900.0


class Asked:
    """One request that a broker got."""

    def __init__(self, broker: ScriptedBroker, session: Session, frame: bytes, at_s: float) -> None:
        header = read_request_header(frame)
        self.broker = broker
        self.session = session
        self.reply: bytes | None = None
        self.at_s = at_s
        self.version = header.api_version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id
        self.kind = request_class(header.api_key)
        self.is_open = True
        version = min(self.version, API[header.api_key].max_version)
        self.body: Any = decoder(self.kind, version)(frame, header.body_position)[0]

    def __repr__(self) -> str:
        return f"{self.kind.__name__} v{self.version} to node {self.broker.node_id} at {self.at_s:g} s"

    @property
    def sent(self) -> list[Sent]:
        """The batches of a produce."""
        return sent_in(self.body, self.broker.cluster.topics, self.version)

    @property
    def values(self) -> list[bytes | None]:
        return [value for batch in self.sent for value in batch.values]

    def answer(self, response: Response, *, version: int | None = None) -> None:
        parts: list[Any] = response_parts(self.correlation_id, response, self.version if version is None else version)
        self.answer_with(b"".join(bytes(part) for part in parts))

    def answer_with(self, reply: bytes) -> None:
        """The bytes are sent when everything before it on its connection is answered, as brokers do."""
        self.is_open = False
        self.reply = reply
        self.session.send_answers()

    def accept(self, **fields: Any) -> None:
        """A produce: its batches go to the log, where their sequences are judged."""
        self.answer(produce_answer(self, self.broker.cluster.logs, **fields))

    def write_unanswered(self) -> None:
        """A produce is carried out; its answer gets lost."""
        produce_answer(self, self.broker.cluster.logs)

    def refuse(self, code: int, partition: int | None = None, **fields: Any) -> None:
        """A produce: refused, the whole of it or one partition."""
        self.answer(refused(self, self.broker.cluster.logs, code, partition, **fields))

    def cut(self) -> None:
        """The connection is reset, and with it all that was not answered."""
        self.is_open = False
        self.session.cut()


class Session:
    """The Receiver of one accepted connection."""

    def __init__(self, broker: ScriptedBroker, link: Link) -> None:
        self._broker = broker
        self._link = link
        self._unanswered: deque[Asked] = deque()
        self._buffer = memoryview(bytearray(1 << 16))
        self._data = bytearray()
        link.start(self)

    def get_buffer(self) -> memoryview:
        return self._buffer

    def received(self, count: int) -> None:
        self._data += self._buffer[:count]
        while len(self._data) >= 4:
            end = 4 + int.from_bytes(self._data[:4], "big")
            if len(self._data) < end:
                return
            frame = bytes(self._data[4:end])
            del self._data[:end]
            asked = Asked(self._broker, self, frame, self._broker.cluster.loop.time())
            self._unanswered.append(asked)
            self._broker.got(asked)

    def send_answers(self) -> None:
        while self._unanswered and self._unanswered[0].reply is not None:
            reply = self._unanswered.popleft().reply
            if reply:
                self._link.send([reply])

    def cut(self) -> None:
        self._broker.cluster.world.wires.cut(self._link)  # type: ignore[arg-type]

    def close(self) -> None:
        self._link.close_when_sent()

    def pause(self) -> None:
        """Reads nothing until `resume`."""
        self._link.pause_reading()

    def resume(self) -> None:
        self._link.resume_reading()

    def drained(self) -> None:
        pass

    def closed(self, reason: BaseException | None) -> None:
        self._broker.sessions.remove(self)


class ScriptedBroker:
    def __init__(self, cluster: ScriptedCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.name = f"broker{node_id}"
        self.port = 9092
        self.rules: dict[type[Request], Rule] = {}
        self.sessions: list[Session] = []
        self.accepted = 0
        self._host: Host | None = None
        self._listener: Any = None

    @property
    def address(self) -> str:
        return f"{self.name}:{self.port}"

    async def start(self) -> None:
        self._host = self._host or self.cluster.world.host(self.name)
        self._listener = await self._host.network.listen(self.name, self.port, self._accept)

    def stop(self) -> None:
        """Nobody listens any more, and all connections are reset."""
        self._listener.close()
        self.cut_all()

    def cut_all(self) -> None:
        for session in list(self.sessions):
            session.cut()

    def _accept(self, link: Link) -> None:
        self.accepted += 1
        self.sessions.append(Session(self, link))

    def got(self, asked: Asked) -> None:
        self.cluster.asked.append(asked)
        rule = self.rules.get(asked.kind) or self.cluster.rules.get(asked.kind) or DEFAULTS[asked.kind]
        response = rule(asked)
        if response is not None:
            asked.answer(response)
        self.cluster.news.set()


class ScriptedCluster:
    """`asked` is every request that any broker got, in order; `logs` what the partitions hold."""

    def __init__(self, loop: SimLoop, seed: int = 1) -> None:
        self.loop = loop
        self.world = SimWorld(loop, seed, latency_ms=(0.0, 0.0))
        self.brokers: dict[int, ScriptedBroker] = {}
        self.topics: dict[str, Topic] = {}
        self.logs = Logs()
        self.asked: list[Asked] = []
        self.rules: dict[type[Request], Rule] = {}
        self.limits: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {"transaction.version": 2}
        self.coordinator_id = 1
        self.next_producer_id = 1000
        self.news = asyncio.Event()
        self._taken: set[Asked] = set()

    async def start(self, nodes: int) -> None:
        for node_id in range(1, nodes + 1):
            await self.add_node(node_id)

    async def add_node(self, node_id: int) -> ScriptedBroker:
        broker = self.brokers[node_id] = ScriptedBroker(self, node_id)
        await broker.start()
        return broker

    def node(self, node_id: int) -> ScriptedBroker:
        return self.brokers[node_id]

    def topic(self, name: str, leaders: list[int] | None = None) -> Topic:
        """A topic with one partition for each leader named."""
        made = self.topics[name] = Topic(name, [1] if leaders is None else leaders)
        return made

    @property
    def address(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def host(self, name: str = "client") -> Host:
        return self.world.host(name)

    def producer(self, **settings: Any) -> Producer:
        return Producer(host=self.host(), **{"bootstrap_servers": self.address, **settings})

    def settings(self, **settings: Any) -> ConnectionSettings:
        return load(ConnectionSettings, {"bootstrap_servers": self.address, **settings})

    def first_generation(self) -> None:
        """Brokers that know the first generation of transactions alone."""
        self.features = {}
        self.limits = {0: (0, 11), 26: (0, 4), 28: (0, 4)}

    # -- what was asked

    def hold(self, kind: type[Request]) -> None:
        """The test answers requests of this kind itself."""
        self.rules[kind] = lambda asked: None

    def release(self, kind: type[Request]) -> None:
        """From now on they are answered again; those that were held still are not."""
        self.rules.pop(kind, None)

    def all(self, kind: type[Request]) -> list[Asked]:
        return [asked for asked in self.asked if asked.kind is kind]

    def held(self, kind: type[Request]) -> list[Asked]:
        return [asked for asked in self.all(kind) if asked.is_open and asked.session in asked.broker.sessions]

    @property
    def produced(self) -> list[Sent]:
        """Every batch that was ever sent, in order."""
        return [batch for asked in self.all(ProduceRequest) for batch in asked.sent]

    @property
    def kinds(self) -> list[str]:
        """The requests so far by name, without those that find the cluster."""
        quiet = {"ApiVersions", "Metadata"}
        names = [asked.kind.__name__.removesuffix("Request") for asked in self.asked]
        return [name for name in names if name not in quiet]

    async def next(self, kind: type[Request]) -> Asked:
        """The oldest request of a kind that the test has not taken yet, waiting for it."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for asked in self.asked:
                    if asked.kind is kind and asked not in self._taken:
                        self._taken.add(asked)
                        return asked
                self.news.clear()
                await self.news.wait()

    def skip(self, kind: type[Request]) -> None:
        """`next` gives only those that come from now on."""
        self._taken.update(self.all(kind))

    async def settle(self) -> None:
        """Lets everything happen that needs no time to pass, or next to none."""
        await asyncio.sleep(0.0001)


Test = Callable[..., Coroutine[Any, Any, None]]


def scripted(*, nodes: int = 1, seed: int = 1) -> Callable[[Test], Callable[..., None]]:
    """Runs `async def test(cluster, ...)` in virtual time, with so many brokers, ids from 1 on."""

    def decorate(test: Test) -> Callable[..., None]:
        @functools.wraps(test)
        def in_virtual_time(**arguments: Any) -> None:
            loop = SimLoop(end_s=END_S)
            raised: list[str] = []
            loop.set_exception_handler(lambda _, context: raised.append(f"{context['message']}: {context!r}"))

            async def scenario() -> None:
                cluster = ScriptedCluster(loop, seed)
                await cluster.start(nodes)
                await test(cluster, **arguments)
                await asyncio.sleep(0.01)
                left = [task for task in loop.unfinished_tasks() if task is not asyncio.current_task()]
                assert not left, f"left over: {left}"

            run(scenario(), loop=loop)
            assert not raised, raised

        signature = inspect.signature(test)
        in_virtual_time.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=list(signature.parameters.values())[1:]
        )
        return in_virtual_time

    return decorate


def silent(asked: Asked) -> None:
    """A rule: no answer, ever."""
