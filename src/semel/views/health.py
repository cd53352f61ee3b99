"""What is wrong with a cluster, why it matters, and what to do: one finding each, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from semel.views.cluster import DOWN, FENCED, ClusterView
from semel.views.wording import count_text, duration_text, size_text

BAD, WARN = "bad", "warn"
_HELD_WARN_MS = 10_000
_FREE_BAD, _FREE_WARN = 0.05, 0.15
_SHOWN = 3


class Finding(NamedTuple):
    """`page` is where the console shows more of it; `command` is what may be typed against it."""

    severity: str
    title: str
    why: str
    what_to_do: str
    page: str
    command: str | None = None

    def document(self) -> dict[str, Any]:
        return self._asdict()


def findings(view: ClusterView, held: Iterable[Mapping[str, Any]], disks: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """`held`: documents of `views.stuck`; `disks`: nodes of `views.cluster_info`."""
    found = [*_controller(view), *_nodes(view), *_partitions(view), *_transactions(held), *_disks(disks)]
    return sorted(found, key=lambda one: one.severity != BAD)


def _controller(view: ClusterView) -> Iterable[Finding]:
    if not view.has_controller:
        yield Finding(
            BAD,
            "No controller decides",
            "Topics and settings cannot be changed, and no new leader is elected when a node is lost.",
            "Start the controllers, or heal the network between them: a majority of the voters is needed.",
            "/nodes",
        )


def _nodes(view: ClusterView) -> Iterable[Finding]:
    for node in view.nodes:
        if node.state in (DOWN, FENCED):
            held = count_text(node.leads + node.follows, "replica")
            how = "is down" if node.state == DOWN else "is fenced: it does not send heartbeats to the controller"
            yield Finding(
                BAD if node.leads else WARN,
                f"Node {node.node_id} {how}",
                f"Its {held} are missing; a second loss may stop writes, or lose what nobody else has.",
                "Start it again, on the same data. It catches up by itself.",
                "/nodes",
                "semel cluster status --watch",
            )


def _partitions(view: ClusterView) -> Iterable[Finding]:
    offline = [f"{one.topic}/{one.partition}" for one in view.offline]
    if offline:
        yield Finding(
            BAD,
            f"{count_text(len(offline), 'partition')} without a leader: {_some(offline)}",
            "Nobody can read or write there.",
            "Start the nodes that hold their replicas. To give up what only those have: an unclean election.",
            "/topics?trouble=1",
            "semel cluster status",
        )
    below = [f"{one.topic}/{one.partition}" for one in view.below_min if not one.is_offline]
    if below:
        yield Finding(
            BAD,
            f"{count_text(len(below), 'partition')} below min.insync.replicas: {_some(below)}",
            "Producers with acks=all are refused there.",
            "Bring back the replicas that are out of sync.",
            "/topics?trouble=1",
            "semel cluster status",
        )
    others = [
        f"{one.topic}/{one.partition}" for one in view.under_replicated if not one.is_offline and not one.is_below_min
    ]
    if others:
        yield Finding(
            WARN,
            f"{count_text(len(others), 'partition')} with replicas out of sync: {_some(others)}",
            "Reading and writing go on, with fewer copies than were asked for.",
            "If no node is down, see whether one is slow: the lag of followers is on the page of nodes.",
            "/topics?trouble=1",
            "semel cluster status",
        )


def _transactions(held: Iterable[Mapping[str, Any]]) -> Iterable[Finding]:
    for place in held:
        if not place["transactions"]:
            continue
        first = place["transactions"][0]
        since_ms = first["age_ms"] if first["age_ms"] is not None else first["idle_ms"] or 0
        is_endless = first["hangs"]
        if since_ms < _HELD_WARN_MS and not is_endless:
            continue
        waiting = count_text(place["end_offset"] - place["last_stable_offset"], "offset")
        who = first["transactional_id"] or f"producer {first['producer_id']}, which no coordinator knows"
        yield Finding(
            BAD if is_endless else WARN,
            f"{place['place']} is held back by {who}",
            f"Readers of committed records stop at offset {place['last_stable_offset']:,}: {waiting} wait behind a "
            f"transaction that has been open for {duration_text(since_ms)}"
            + (", and that nobody will end." if is_endless else "."),
            "End it, if its producer is gone. See first who it is.",
            f"/transactions?partition={place['place']}",
            first["command"],
        )


def _disks(disks: Iterable[Mapping[str, Any]]) -> Iterable[Finding]:
    for node in disks:
        free, held = node["free_bytes"], node["bytes"]
        if free is None or free + held == 0:
            continue
        share = free / (free + held)
        if share < _FREE_WARN:
            yield Finding(
                BAD if share < _FREE_BAD else WARN,
                f"The disk of node {node['node']} is nearly full: {size_text(free)} are left",
                "A node whose disk is full stops.",
                "Shorten retention.ms or retention.bytes of large topics, trim one, or make room.",
                "/nodes",
                "semel topic trim TOPIC --before 1d",
            )


def _some(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
