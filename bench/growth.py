"""What one request costs while more and more is there: log, partitions, producers, consumers, open transactions.

A cost that stays is flat. Where the work itself grows with what is there, as that of a rebalance does with its members,
the cost is that of one part of it, and has to stay, too.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import growth_groups
import growth_partitions
import growth_transactions
from brokers import Node, semel_node
from cases import Case, Progress, chosen, run_cases
from curves import Curve, size_text
from growth_load import (
    FLAT,
    PULSE_TOPIC,
    REQUESTS,
    Caller,
    Cost,
    Costs,
    Pulse,
    batch,
    check_fetched,
    check_produced,
    fetch_frame,
    on_one_core,
    produce_frame,
    tries,
    write_from_many,
)
from load_generator import Produce, load, skip_reason

NOTE = (
    "semel with `--flush os`, alone on one core with its client: one connection, one request at a time. CPU is the "
    "broker's. Here the lowest of several tries counts, and the spread is that of the tries. The ratio is that of the "
    f"last point to the lowest one of the last hundredfold; up to {FLAT:g} is flat. Work that itself grows (a "
    "rebalance) is divided by what it grows with."
)
# Small: with more, memory that the machine has to fetch for new pages is most of what is measured, and full of luck.
_BATCH = [b"." * 100]
_SEED = 7
_PLACES = 150
_FIRST_PRODUCER_ID = 1_000_000
_WITH_LOAD = "log size"


def measure(root: Path, share: float, words: str) -> list[Curve]:
    sizes: dict[str, tuple[list[int], Callable[[Node, list[int], Progress], list[Curve]]]] = {
        _WITH_LOAD: (_scaled([10, 100, 1000, 10_000], share), _log_size),
        "partitions": (_scaled([1, 10, 100, 1000, 5000], share), growth_partitions.measure),
        "producer ids": (_scaled([1, 1000, 10_000, 100_000, 1_000_000], share), _producer_ids),
        "consumers of a group": (_scaled([1, 10, 100, 400, 1600], share), growth_groups.measure),
        "open transactions": (_scaled([1, 10, 100, 1000, 4000], share), growth_transactions.measure),
    }

    def case(name: str) -> Case[Curve]:
        points, work = sizes[name]

        def run(tell: Progress) -> list[Curve]:
            place = root / name.replace(" ", "-")
            with _running(place) as node:
                return work(node, points, tell)

        return Case(name, len(points), run)

    cases = chosen([case(name) for name in sizes], words)
    reason = skip_reason()
    if reason is not None:
        Progress().say(f"{_WITH_LOAD} is left out: {reason}")
        cases = [one for one in cases if one.name != _WITH_LOAD]
    return run_cases(cases)


def _scaled(sizes: list[int], share: float) -> list[int]:
    """The larger ones become smaller; two are left at least."""
    most = max(sizes[-1] * share, sizes[1])
    return [size for size in sizes if size < most] + [int(most)]


@contextmanager
def _running(root: Path) -> Iterator[Node]:
    node = semel_node(root)
    with on_one_core():
        node.process.start()
    try:
        yield node
    finally:
        node.process.kill()


def _log_size(node: Node, sizes: list[int], tell: Progress) -> list[Curve]:
    with _running(Path(f"{node.root}-small")) as small, closing(Pulse(small)) as pulse:
        return _log_size_beside(node, pulse, sizes, tell)


def _log_size_beside(node: Node, pulse: Pulse, sizes: list[int], tell: Progress) -> list[Curve]:
    """One partition; small batches are appended, 64 KB are read from places all over it.

    The same number of places at each size: otherwise the memory of the machine is measured, which is slower the more
    of it is touched.
    """
    topic = "log"
    node.create(topic, 1)
    costs = Costs("MB in the log")
    chance = random.Random(_SEED)
    written = 0.0

    produces = [produce_frame(topic, 0, batch(_BATCH))] * REQUESTS
    small_produces = [produce_frame(PULSE_TOPIC, 0, batch(_BATCH))] * REQUESTS
    small_fetches = [fetch_frame(PULSE_TOPIC, 0, place) for place in range(_PLACES)] * (REQUESTS // _PLACES)

    def small_produce() -> Cost:
        return pulse.caller.cost(small_produces, check_produced)

    def small_fetch() -> Cost:
        return pulse.caller.cost(small_fetches, check_fetched)

    with Caller(node) as caller:
        for size in sizes:
            while written < size:
                work = Produce(connections=1, in_flight=8, records=64, partitions=1)
                seconds = min(max((size - written) / 400, 0.05), 2.0)
                written += load(node, topic, work, seconds=seconds).sum_megabytes
            os.sync()  # else the machine still writes out what fills the log, the more the larger that is
            places = [chance.randrange(int(written * 1000)) for _ in range(_PLACES)]
            fetches = [fetch_frame(topic, 0, place) for place in places] * (REQUESTS // _PLACES)
            produced = pulse.tries("produce", partial(caller.cost, produces, check_produced), small_produce)
            fetched = pulse.tries("fetch", partial(caller.cost, fetches, check_fetched), small_fetch)
            told = [costs.add("produce 100 B", size, produced), costs.add("fetch 64 KB", size, fetched)]
            tell(f"log of {size_text(size)} MB: {'; '.join(told)}")
    return costs.curves()


def _producer_ids(node: Node, sizes: list[int], tell: Progress) -> list[Curve]:
    """All of them have written to one partition; any of them writes again."""
    topic = "producers"
    node.create(topic, 1)
    costs = Costs("producer ids in a partition")
    chance = random.Random(_SEED)
    sequences: dict[int, int] = {}
    known = 0

    def produces() -> list[bytes]:
        frames = []
        for _ in range(REQUESTS):
            producer_id = _FIRST_PRODUCER_ID + chance.randrange(known)
            sequences[producer_id] = sequences.get(producer_id, 0) + 1
            frames.append(produce_frame(topic, 0, batch([b"." * 100], producer_id, sequences[producer_id])))
        return frames

    fetches = [fetch_frame(topic, 0, 0)] * REQUESTS
    with Caller(node) as caller:
        for size in sizes:
            write_from_many(caller, topic, range(_FIRST_PRODUCER_ID + known, _FIRST_PRODUCER_ID + size))
            known = size
            told = [
                costs.add("produce by one of them", size, tries(lambda: caller.cost(produces(), check_produced))),
                costs.add("fetch", size, tries(lambda: caller.cost(fetches, check_fetched))),
            ]
            tell(f"{size_text(size)} producer ids: {'; '.join(told)}")
    return costs.curves()
