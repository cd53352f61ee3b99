"""The world around a pipeline under chaos: topics, records that come in while it runs, and the judge of what comes out.

Every record has a key and a number within that key; so what is lost, repeated or out of order can be told from the
output alone.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from chaos_program import HEAVY_CHARACTERS, HEAVY_KEY

from semel.client.admin.values import NewTopic
from semel.client.metadata import TopicPartition
from semel.spark.adoption import marker_of
from semel.sync import Admin, Consumer, Producer

KEYS = 7
INPUT_PARTITIONS = 4
OUTPUT_PARTITIONS = 3
_PAUSE_S = 0.05
_AT_A_TIME = 2
_FLUSH_S = 120.0
_LARGEST_BATCH = 5000


def transformed(text: str, key: str) -> bytes | None:
    """What becomes of a record; None: it is left out. `chaos_program.transformed` says the same to Spark."""
    if text.endswith("7"):
        return None
    padding = "x" * (HEAVY_CHARACTERS if key == HEAVY_KEY else 10)
    return f"{text[::-1]} {padding}".encode()


class Node(Protocol):
    """A broker: `start` may be called again after `kill`."""

    @property
    def address(self) -> str: ...

    def start(self) -> object: ...

    def kill(self) -> int: ...


class Feeder:
    """Produces into a topic until it is stopped; a broker that is away for a while only delays it."""

    def __init__(self, address: str, topic: str) -> None:
        self._address = address
        self._topic = topic
        self._is_stopped = threading.Event()
        self._counts = [0] * KEYS
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._feed, name="feeder", daemon=True)
        self._thread.start()

    def _feed(self) -> None:
        sent = []
        turn = 0
        try:
            with Producer(bootstrap_servers=self._address) as producer:
                while not self._is_stopped.wait(_PAUSE_S):
                    for _ in range(_AT_A_TIME):
                        number = turn % KEYS
                        text = f"{number}/{self._counts[number]}"
                        sent.append(producer.send(self._topic, text.encode(), f"key-{number}".encode()))
                        self._counts[number] += 1
                        turn += 1
                for delivery in sent:
                    delivery.result(_FLUSH_S)
        except BaseException as failure:
            self._failure = failure

    def stop(self) -> dict[str, list[str]]:
        """Returns when all records are written: the texts of each key, in order."""
        self._is_stopped.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return {f"key-{key}": [f"{key}/{number}" for number in range(count)] for key, count in enumerate(self._counts)}


@dataclass
class Verdict:
    """What the output topic holds, beside what it should."""

    produced: int = 0
    records: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    wrong: int = 0
    """Records that no record of the input could have become."""
    marker: int | None = None
    batches: int = 0
    staged_files: Sequence[str] = ()

    @property
    def is_exactly_once(self) -> bool:
        return not (self.lost or self.duplicated or self.out_of_order or self.wrong)

    def compare(self, wanted: Sequence[bytes], found: Sequence[bytes]) -> None:
        """Adds what is found of one key. Its records keep the order of the input, so that their first appearances must
        be the input itself."""
        places = {value: place for place, value in enumerate(wanted)}
        counts = Counter(found)
        self.records += len(found)
        self.wrong += sum(count for value, count in counts.items() if value not in places)
        self.lost += sum(value not in counts for value in wanted)
        self.duplicated += sum(count - 1 for value, count in counts.items() if value in places)
        last = -1
        for value in dict.fromkeys(found):
            place = places.get(value, last)
            self.out_of_order += place < last
            last = max(last, place)


class ChaosWorld:
    """One query: its topics and its checkpoint."""

    def __init__(self, broker: Node, root: Path, name: str, **write: str) -> None:
        root.mkdir()
        self.broker = broker
        self.checkpoint = root / "checkpoint"
        self._input, self._output = f"{name}-in", f"{name}-out"
        with Admin(bootstrap_servers=broker.address) as admin:
            for topic, partitions in ((self._input, INPUT_PARTITIONS), (self._output, OUTPUT_PARTITIONS)):
                admin.create_topics(NewTopic(topic, partitions=partitions, replication_factor=1))
        self.read = {
            "kafka.bootstrap.servers": broker.address,
            "subscribe": self._input,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(_LARGEST_BATCH),
        }
        self.write = {
            "kafka.bootstrap.servers": broker.address,
            "topic": self._output,
            "checkpointLocation": str(self.checkpoint),
            **write,
        }
        self.feeder = Feeder(broker.address, self._input)

    def batches_done(self) -> int:
        """How many batches Spark knows to be done."""
        return self._last("commits") + 1

    def batches_begun(self) -> int:
        return self._last("offsets") + 1

    def _last(self, folder: str) -> int:
        names = (path.name for path in (self.checkpoint / folder).glob("*"))
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def staged_files(self) -> list[str]:
        return sorted(path.name for path in (self.checkpoint / "sink-staging").glob("*"))

    @contextmanager
    def output_end(self) -> Iterator[Callable[[], int]]:
        """A function whose result grows when anything is written to the output, committed or not."""
        with Consumer(bootstrap_servers=self.broker.address, isolation_level="read_uncommitted") as consumer:
            partitions = [TopicPartition(self._output, number) for number in range(OUTPUT_PARTITIONS)]
            yield lambda: sum(consumer.end_offsets(partitions).values())

    def judge(self, texts: dict[str, list[str]]) -> Verdict:
        """Of everything that was produced. Call it when all of it went through the pipeline."""
        found: dict[str, list[bytes]] = {key: [] for key in texts}
        for key, value in self._committed():
            found.setdefault(key, []).append(value)
        verdict = Verdict(
            produced=sum(map(len, texts.values())),
            marker=self._marker(),
            batches=self.batches_done(),
            staged_files=self.staged_files(),
        )
        for key, values in found.items():
            wanted = [made for text in texts.get(key, ()) if (made := transformed(text, key)) is not None]
            verdict.compare(wanted, values)
        return verdict

    def _committed(self) -> Iterator[tuple[str, bytes]]:
        settings = {"bootstrap_servers": self.broker.address, "isolation_level": "read_committed"}
        with Consumer(**settings, auto_offset_reset="earliest") as consumer:
            partitions = [TopicPartition(self._output, number) for number in range(OUTPUT_PARTITIONS)]
            ends = consumer.end_offsets(partitions)
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            while any(consumer.position(partition) < end for partition, end in ends.items()):
                for messages in consumer.poll(timeout_ms=1000).values():
                    for message in messages:
                        yield (message.key or b"").decode(), message.value or b""

    def _marker(self) -> int | None:
        _, marker = marker_of(self.write)
        return None if marker is None else marker.number
