"""Kills and pauses controllers while topics are made, deleted and changed and a producer works; then counts.

python tests/crash/controller_attack.py --faults 200 --nodes 3        (make controllers COUNT=200)

Every change that was acknowledged must be there at the end, on every node, every topic must be whole, and no
acknowledged record may be lost. What was not acknowledged may be there or not.
"""

from __future__ import annotations

import argparse
import random as random_module
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from semel import NewTopic
from semel.client.admin.values import ConfigResource
from semel.client.errors import SemelError
from semel.sync import Admin, Consumer, Producer
from semel.testing import Cluster

PARTITIONS = 3
STEADY = "steady"
SETTINGS = {
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "auto.create.topics.enable": "false",
}
PATIENCE_MS = 30_000


@dataclass
class Known:
    """Of a topic: whether it is there, and its setting; None is what nobody knows, because an answer was lost."""

    is_there: bool | None
    retention_ms: set[str] = field(default_factory=set)


class Changer(threading.Thread):
    """One change after the other. `known` is what must be so."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.known: dict[str, Known] = {}
        self.counts: Counter[str] = Counter()
        self.is_over = threading.Event()
        self._servers = bootstrap
        self._random = random_module.Random(f"{seed}/changes")

    def run(self) -> None:
        with Admin(bootstrap_servers=self._servers, default_api_timeout_ms=PATIENCE_MS) as admin:
            while not self.is_over.is_set():
                there = [name for name, known in self.known.items() if known.is_there]
                kind = self._random.choice(["create", "create", "delete", "alter", "alter"]) if there else "create"
                name = f"topic-{len(self.known)}" if kind == "create" else self._random.choice(there)
                try:
                    self._change(admin, kind, name)
                    self.counts[kind] += 1
                except SemelError:
                    self.counts[f"{kind} in doubt"] += 1

    def _change(self, admin: Admin, kind: str, name: str) -> None:
        if kind == "create":
            known = self.known[name] = Known(None)
            admin.create_topics(NewTopic(name, partitions=PARTITIONS), wait=False)
            known.is_there = True
            return
        known = self.known[name]
        if kind == "delete":
            known.is_there = None
            admin.delete_topics(name, wait=False)
            known.is_there = False
            return
        value = str(self._random.randrange(1, 10**9))
        known.retention_ms.add(value)
        admin.alter_configs(ConfigResource.topic(name), set={"retention.ms": value})
        known.retention_ms = {value}


class Sender(threading.Thread):
    """Sends numbers one after the other; `acknowledged` must all be read at the end."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[int] = []
        self.is_over = threading.Event()
        self._servers = bootstrap

    def run(self) -> None:
        number = 0
        with Producer(bootstrap_servers=self._servers, delivery_timeout_ms=PATIENCE_MS * 2) as producer:
            while not self.is_over.is_set():
                number += 1
                with suppress(SemelError):
                    producer.send(STEADY, b"%d" % number).result()
                    self.acknowledged.append(number)
                time.sleep(0.005)


def strike(cluster: Cluster, random: random_module.Random) -> str:
    """One fault, and its end: the active controller more often than another node."""
    active = cluster.controller_id()
    node_id = active if random.random() < 0.6 else random.choice(list(cluster.nodes))
    lasts_s = random.choice([0.0, 0.5, 3.0, 6.0])
    met = "the active controller" if node_id == active else "another node"
    if random.random() < 0.6:
        cluster.kill(node_id)
        time.sleep(lasts_s)
        cluster.start_node(node_id)
        return f"kill of {met}"
    cluster.pause(node_id)
    time.sleep(lasts_s)
    cluster.resume(node_id)
    return f"pause of {met}"


def attack(faults: int, seed: int, nodes: int = 3) -> tuple[Counter[str], list[str]]:
    """What was done, and what is wrong."""
    random = random_module.Random(f"{seed}/faults")
    done: Counter[str] = Counter()
    with Cluster(nodes=nodes, settings=SETTINGS) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics(NewTopic(STEADY, partitions=1))
        changer, sender = Changer(cluster.bootstrap_servers, seed), Sender(cluster.bootstrap_servers)
        changer.start()
        sender.start()
        for _ in range(faults):
            before = sum(changer.counts.values())
            done[strike(cluster, random)] += 1
            until_s = time.monotonic() + PATIENCE_MS / 1000
            while sum(changer.counts.values()) <= before + 1 and time.monotonic() < until_s:
                time.sleep(0.05)
        changer.is_over.set()
        sender.is_over.set()
        changer.join(2 * PATIENCE_MS / 1000)
        sender.join(3 * PATIENCE_MS / 1000)
        done += changer.counts
        done["records acknowledged"] = len(sender.acknowledged)
        return done, [*_wrong_topics(cluster, changer.known), *_lost_records(cluster, sender.acknowledged)]


def _wrong_topics(cluster: Cluster, known: dict[str, Known]) -> list[str]:
    wrong = []
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        topics = admin.list_topics()
        for name, one in known.items():
            if one.is_there is not None and (name in topics) != one.is_there:
                wrong.append(f"{name} was {'made' if one.is_there else 'deleted'}, and is not so")
            if name not in topics:
                continue
            partitions = topics[name].partitions
            if len(partitions) != PARTITIONS or any(one.leader_id < 0 for one in partitions.values()):
                wrong.append(f"{name} is not whole: {partitions}")
            resource = ConfigResource.topic(name)
            value = admin.describe_configs(resource, names=["retention.ms"])[resource]["retention.ms"].value
            if len(one.retention_ms) == 1 and one.is_there and value not in one.retention_ms:
                wrong.append(f"{name} has retention.ms={value}, and {one.retention_ms} was acknowledged")
    return wrong


def _lost_records(cluster: Cluster, acknowledged: list[int]) -> list[str]:
    wanted, read = set(acknowledged), Counter[int]()
    with Consumer(STEADY, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        until_s = time.monotonic() + PATIENCE_MS / 1000
        while not wanted <= read.keys() and time.monotonic() < until_s:
            for messages in consumer.poll(timeout_ms=1000).values():
                read.update(int(message.value or b"0") for message in messages)
    wrong = [f"{len(wanted - read.keys())} acknowledged records are lost"] if wanted - read.keys() else []
    doubled = [number for number, count in read.items() if count > 1]
    return [*wrong, f"{len(doubled)} records are there twice"] if doubled else wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=3)
    options = parser.parse_args()
    done, wrong = attack(options.faults, options.seed, options.nodes)
    for what, count in sorted(done.items()):
        print(f"{count:8d}  {what}")
    print("\n".join(wrong) or "nothing is lost, doubled or half made")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
