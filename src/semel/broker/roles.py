"""What a node has to give to its handlers, and how each gets what it needs.

A handler names its roles: `async def handle(request, context, *, groups, internal_topics)` is given the two parts of
the node that are called so here, once, when it is loaded. Nothing is looked up for each request, and a test calls the
handler with roles of its own making.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from semel.broker.cluster_view import ClusterView
from semel.broker.controller_channel import AdminChannel, ControllerChannel
from semel.broker.fetch_sessions import FetchSessions
from semel.broker.inner_requests import InnerRequests
from semel.broker.internal_topics import InternalTopics
from semel.broker.markers import LocalMarkers
from semel.broker.node_info import NodeInfo
from semel.broker.producer_ids import ProducerIds
from semel.broker.read_failures import ReadFailures
from semel.broker.topics import Topics
from semel.broker.transactional_produce import TransactionVerifier
from semel.config import ListenerKind, NodeListener
from semel.controller.active_controller import ActiveController
from semel.coordinator.group.coordinator import GroupCoordinator
from semel.coordinator.txn.coordinator import TransactionCoordinator
from semel.host.api import Clock, Disk, Jobs
from semel.log.store import LogStore
from semel.quorum.owner import LogReplica, Voting
from semel.rpc.slices import Slices


@dataclass(frozen=True)
class Roles:
    """The parts of a node, by the names that handlers call them. Made by `Broker.start`."""

    node: NodeInfo  # who this node is, and its settings
    listeners: Mapping[str, ListenerKind]  # of what kind each is
    cluster: ClusterView  # what exists, who leads it, where nodes are
    topics: Topics  # what this node serves
    controller: ControllerChannel  # changes to the cluster
    internal_topics: InternalTopics
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    verifier: TransactionVerifier  # of batches in transactions
    markers: LocalMarkers
    producer_ids: ProducerIds
    fetch_sessions: FetchSessions
    replica_sessions: FetchSessions
    store: LogStore
    read_failures: ReadFailures
    slices: Slices  # long requests share the loop by them
    clock: Clock
    disk: Disk
    jobs: Jobs
    on_broken: Callable[[BaseException], None]  # ends the node


@dataclass(frozen=True)
class ControllerRoles:
    """The parts of a node that has a controller, for what controllers serve. Made by `ControllerPart`."""

    node: NodeInfo
    listeners: Mapping[str, ListenerKind]  # those for controllers
    bound: Mapping[str, NodeListener]  # all listeners of this node, with the ports that they have got
    cluster: ClusterView
    controller: AdminChannel  # decides
    active_controller: ActiveController  # what nodes and administrators ask of it
    replica: LogReplica  # of the metadata log, for those who follow it
    voting: Voting  # the same, for the other voters
    inner_requests: InnerRequests  # that brokers have sent on
    slices: Slices
    clock: Clock


def with_roles(handle: Callable[..., Any], roles: Roles | ControllerRoles) -> Callable[..., Any]:
    """The handler, given the roles that it names; it is left to be called with request and context."""
    named = [one.name for one in inspect.signature(handle).parameters.values() if one.kind is one.KEYWORD_ONLY]
    return partial(handle, **{name: getattr(roles, name) for name in named})
