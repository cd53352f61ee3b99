"""An assignor of your own: members get partitions in proportion to a weight that each of them tells.

    python examples/weighted_assignor.py localhost:9092 orders 2

Start it several times, with other weights. All members run this program, so that whoever leads the group can assign.
"""

import asyncio
import sys
from collections.abc import Mapping

import semel


class WeightedAssignor(semel.Assignor):
    name = "weighted"

    def __init__(self, weight: int) -> None:
        self._weight = weight

    def subscription(self, topics: frozenset[str]) -> bytes:
        return b"%d" % self._weight

    def assign(
        self, partitions: Mapping[str, int], subscriptions: Mapping[str, semel.Subscription]
    ) -> Mapping[str, semel.Assignment]:
        weights = {name: int(member.user_data or b"1") for name, member in subscriptions.items()}
        given: dict[str, list[semel.TopicPartition]] = {name: [] for name in subscriptions}
        for topic, count in sorted(partitions.items()):
            readers = [name for name, member in subscriptions.items() if topic in member.topics]
            for index in range(count if readers else 0):
                least = min(readers, key=lambda name: (len(given[name]) + 1) / weights[name])
                given[least].append(semel.TopicPartition(topic, index))
        return {name: semel.Assignment(tuple(owned)) for name, owned in given.items()}


async def run(address: str, topic: str, weight: int) -> None:
    async with semel.Consumer(
        topic,
        bootstrap_servers=address,
        group_id="weighted",
        group_protocol="classic",
        partition_assignment_strategy=WeightedAssignor(weight),
    ) as consumer:
        while True:
            await consumer.poll(timeout_ms=1000)
            print(f"weight {weight} reads {', '.join(map(str, sorted(consumer.assignment())))}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 4 or not sys.argv[3].isdigit():
        sys.exit("usage: python examples/weighted_assignor.py ADDRESS TOPIC WEIGHT, such as localhost:9092 orders 2")
    try:
        asyncio.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3])))
    except KeyboardInterrupt:
        pass
