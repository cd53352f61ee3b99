"""One measurement by a client, in a process of its own: `python broker_workers.py ADDRESS TOPIC WORK ...`.

Prints a JSON object. Transactions and the way from producer to consumer are librdkafka's.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

_PARTITIONS = 4
_TICK_S = 0.002
_SETTLING_S = 1.0


def librdkafka_produce(address: str, topic: str, records: str) -> dict[str, float]:
    """Values of 1 KB, to all partitions in turns of the client's own choice."""
    from client_workers import confluent_produce

    size = 1000
    seconds = confluent_produce(address, topic, int(records), size)
    return {"megabytes": int(records) * size / seconds / 1e6}


def transactions(address: str, topic: str, records: str, seconds: str, producers: str = "1") -> dict[str, float]:
    """Of several producers at once: one waits most of the time, for its own timers as well."""
    from confluent_kafka import Producer

    commits_ms: list[float] = []
    all_ready = threading.Barrier(int(producers))

    def run(number: int) -> None:
        own_id = f"{topic}-{time.time_ns()}-{number}"
        producer = Producer({"bootstrap.servers": address, "transactional.id": own_id, "linger.ms": 0})
        producer.init_transactions(60)
        all_ready.wait()
        begin_s = time.perf_counter()
        while time.perf_counter() < begin_s + float(seconds):
            producer.begin_transaction()
            for _ in range(int(records)):
                producer.produce(topic, b"." * 100)
            start_s = time.perf_counter()
            producer.commit_transaction(60)
            commits_ms.append((time.perf_counter() - start_s) * 1000)

    with ThreadPoolExecutor(int(producers)) as threads:
        list(threads.map(run, range(int(producers))))
    return {"a_second": len(commits_ms) / float(seconds), "p99_ms": statistics.quantiles(commits_ms, n=100)[98]}


def end_to_end(address: str, topic: str, rate: str, seconds: str) -> dict[str, float]:
    """Milliseconds from the call of `produce` to the return of `poll`, once both clients are at work."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    waits_ms: list[float] = []
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False, "fetch.wait.max.ms": 100}
    )
    consumer.assign([TopicPartition(topic, number, -1) for number in range(_PARTITIONS)])
    consumer.poll(1.0)
    over = threading.Event()
    begin_ns = time.monotonic_ns() + int(_SETTLING_S * 1e9)

    def read() -> None:
        # One at a time: `consume` of many waits until it has so many, or until its time is up.
        while not over.is_set():
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                sent_ns = int((message.value() or b"0").rstrip(b"."))
                if sent_ns >= begin_ns:
                    waits_ms.append((time.monotonic_ns() - sent_ns) / 1e6)

    reader = threading.Thread(target=read)
    reader.start()
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 0})
    tick_records = int(int(rate) * _TICK_S)
    due_s = time.perf_counter()
    end_s = due_s + _SETTLING_S + float(seconds)
    while due_s < end_s:
        for _ in range(tick_records):
            producer.produce(topic, (b"%d" % time.monotonic_ns()).ljust(100, b"."))
        producer.poll(0)
        due_s += _TICK_S
        time.sleep(max(due_s - time.perf_counter(), 0))
    producer.flush(30)
    time.sleep(0.3)
    over.set()
    reader.join()
    consumer.close()
    cuts = statistics.quantiles(waits_ms, n=100)
    return {"p50_ms": cuts[49], "p99_ms": cuts[98], "records": len(waits_ms)}


def touch(address: str, topic: str, partitions: str) -> dict[str, float]:
    """A record into each partition."""
    import semel.sync

    with semel.sync.Producer(bootstrap_servers=address, linger_ms=5) as producer:
        for number in range(int(partitions)):
            producer.send(topic, b".", partition=number)
        producer.flush()
    return {"partitions": float(partitions)}


def producer_ids(address: str, topic: str, count: str) -> dict[str, float]:
    """A record from each of so many producers."""
    from raw_client import RawClient
    from semel.records.build import build_batch
    from semel.wire.spec.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

    now_ms = time.time_ns() // 1_000_000
    with RawClient(int(address.rpartition(":")[2]), timeout_s=30) as client:
        for number in range(int(count)):
            batch = build_batch(
                [b"."], base_timestamp_ms=now_ms, producer_id=1_000_000 + number, producer_epoch=0, base_sequence=0
            )
            data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
            request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[data])
            answer = client.call(request, 9, ProduceResponse)
            code = answer.responses[0].partition_responses[0].error_code
            if code:
                raise RuntimeError(f"the broker answered {code}")
    return {"producers": float(count)}


if __name__ == "__main__":
    address, topic, work, *arguments = sys.argv[1:]
    print(json.dumps(globals()[work](address, topic, *arguments)))
