"""What type checkers have to refuse: every line that says WRONG, and no other."""

from __future__ import annotations

import semel
import semel.sync

semel.Prodcer(bootstrap_servers="localhost:9092")  # WRONG
semel.sync.Consummer("orders")  # WRONG
semel.Consumer("orders", group="g")  # WRONG
semel.sync.Consumer("orders", group="g")  # WRONG
semel.Producer(acks="al")  # WRONG
semel.sync.Producer(acks="al")  # WRONG
semel.Producer(linger_ms="5 ms")  # WRONG
semel.Producer(compression_type="zip")  # WRONG
semel.Consumer("orders", isolation_level="committed")  # WRONG
semel.Admin(group_id="g")  # WRONG
semel.Admin(bootstrap_servers=9092)  # WRONG


async def run(consumer: semel.Consumer, producer: semel.Producer) -> None:
    try:
        await producer.send("orders", 17)  # WRONG
        await producer.send("orders", b"1", headers={"trace": 1})  # WRONG
        await producer.send("orders", b"1", partion=0)  # WRONG
        await producer.send_and_wait("orders", b"1", partition="0")  # WRONG
    except semel.errors.ProducerFencd:  # WRONG
        pass
    async for message in consumer:
        print(message.value.decode())  # WRONG
        print(message.valu)  # WRONG
    semel.transform(consumer, producer, "exactly-once")  # WRONG
    async for batch in semel.transform(consumer, producer):
        print(batch.messages)  # WRONG


def number(data: bytes) -> int:
    return int(data)


def blocking() -> None:
    with semel.sync.Consumer("orders", value_deserializer=number) as consumer:
        found: semel.Message[bytes, str] = consumer.getone()  # WRONG
        print(found)
    with semel.sync.Producer(value_serializer=number) as producer:  # WRONG
        producer.flush()
    with semel.sync.Producer(value_serializer=str.encode) as texts:
        texts.send("orders", 1)  # WRONG
