"""One file per API. These tables say which are served, in which versions, on which kinds of listener, and what
ApiVersions advertises.

`HANDLERS` is for the listeners of clients and brokers, `CONTROLLER_HANDLERS` for those of controllers, where some keys
mean something else. What only the active controller can do is in both (`FORWARDABLE`): brokers send it on, as it came.
"""

from typing import NamedTuple

from semel.config import ListenerKind

# Brokers call each other as clients do, too.
_CLIENTS_AND_BROKERS = ListenerKind.CLIENTS | ListenerKind.BROKERS


class Served(NamedTuple):
    module: str
    min_version: int
    max_version: int
    # Lower than what is served only for Produce: librdkafka before 2.11.1 stops compressing when it does not see 0.
    advertised_min: int
    listeners: ListenerKind
    # Versions from this one on are what brokers say to each other: served where brokers come.
    of_brokers_since: int | None


def _served(
    module: str,
    min_version: int,
    max_version: int,
    *,
    advertised_min: int | None = None,
    listeners: ListenerKind = _CLIENTS_AND_BROKERS,
    of_brokers_since: int | None = None,
) -> Served:
    advertised = min_version if advertised_min is None else advertised_min
    return Served(module, min_version, max_version, advertised, listeners, of_brokers_since)


FORWARDABLE = frozenset((19, 20, 30, 31, 33, 37, 43, 44, 45, 46, 49, 51, 55, 57, 64))

HANDLERS: dict[int, Served] = {
    0: _served("produce", 3, 13, advertised_min=0),
    1: _served("fetch", 4, 18),
    2: _served("list_offsets", 1, 11),
    3: _served("metadata", 0, 13),
    8: _served("offset_commit", 2, 10),
    9: _served("offset_fetch", 1, 10),
    10: _served("find_coordinator", 0, 6),
    11: _served("join_group", 0, 9),
    12: _served("heartbeat", 0, 4),
    13: _served("leave_group", 0, 5),
    14: _served("sync_group", 0, 5),
    15: _served("describe_groups", 0, 6),
    16: _served("list_groups", 0, 5),
    17: _served("sasl_handshake", 1, 1),
    18: _served("api_versions", 0, 5),
    19: _served("create_topics", 2, 7),
    20: _served("delete_topics", 1, 6),
    21: _served("delete_records", 0, 2),
    22: _served("init_producer_id", 0, 5),
    23: _served("offset_for_leader_epoch", 2, 4),
    24: _served("add_partitions_to_txn", 0, 5, of_brokers_since=4),
    25: _served("add_offsets_to_txn", 0, 4),
    26: _served("end_txn", 0, 5),
    27: _served("write_txn_markers", 1, 2, listeners=ListenerKind.BROKERS),
    28: _served("txn_offset_commit", 0, 6),
    29: _served("describe_acls", 1, 3),
    30: _served("create_acls", 1, 3),
    31: _served("delete_acls", 1, 3),
    32: _served("describe_configs", 1, 4),
    33: _served("alter_configs", 0, 2),
    35: _served("describe_log_dirs", 1, 5),
    36: _served("sasl_authenticate", 0, 2),
    37: _served("create_partitions", 0, 3),
    42: _served("delete_groups", 0, 3),
    43: _served("elect_leaders", 0, 2),
    44: _served("incremental_alter_configs", 0, 1),
    45: _served("alter_partition_reassignments", 0, 1),
    46: _served("list_partition_reassignments", 0, 0),
    47: _served("offset_delete", 0, 0),
    50: _served("describe_user_scram_credentials", 0, 0),
    51: _served("alter_user_scram_credentials", 0, 0),
    55: _served("describe_quorum", 0, 2),
    57: _served("update_features", 0, 2),
    60: _served("describe_cluster", 0, 2),
    61: _served("describe_producers", 0, 0),
    64: _served("unregister_broker", 0, 0),
    65: _served("describe_transactions", 0, 0),
    66: _served("list_transactions", 0, 2),
    68: _served("consumer_group_heartbeat", 0, 1),
    69: _served("consumer_group_describe", 0, 1),
    74: _served("list_config_resources", 0, 1),
    75: _served("describe_topic_partitions", 0, 0),
}

# On listeners of controllers, in the process of the active one. What administrators ask for may come there directly.
CONTROLLER_HANDLERS: dict[int, Served] = {
    1: _served("metadata_fetch", 4, 18, listeners=ListenerKind.CONTROLLERS),
    17: _served("sasl_handshake", 1, 1, listeners=ListenerKind.CONTROLLERS),
    18: _served("api_versions", 0, 5, listeners=ListenerKind.CONTROLLERS),
    36: _served("sasl_authenticate", 0, 2, listeners=ListenerKind.CONTROLLERS),
    52: _served("vote", 0, 2, listeners=ListenerKind.CONTROLLERS),
    53: _served("begin_quorum_epoch", 0, 1, listeners=ListenerKind.CONTROLLERS),
    54: _served("end_quorum_epoch", 0, 1, listeners=ListenerKind.CONTROLLERS),
    56: _served("alter_partition", 2, 3, listeners=ListenerKind.CONTROLLERS),
    58: _served("envelope", 0, 0, listeners=ListenerKind.CONTROLLERS),
    59: _served("fetch_snapshot", 0, 1, listeners=ListenerKind.CONTROLLERS),
    60: _served("describe_controllers", 1, 2, listeners=ListenerKind.CONTROLLERS),
    62: _served("broker_registration", 0, 4, listeners=ListenerKind.CONTROLLERS),
    63: _served("broker_heartbeat", 0, 2, listeners=ListenerKind.CONTROLLERS),
    67: _served("allocate_producer_ids", 0, 0, listeners=ListenerKind.CONTROLLERS),
    70: _served("controller_registration", 0, 0, listeners=ListenerKind.CONTROLLERS),
    73: _served("assign_replicas_to_dirs", 0, 0, listeners=ListenerKind.CONTROLLERS),
} | {key: served._replace(listeners=ListenerKind.CONTROLLERS) for key, served in HANDLERS.items() if key in FORWARDABLE}


def served_on(kind: ListenerKind) -> dict[int, Served]:
    """What is served on a listener of this kind, and in which versions."""
    if ListenerKind.CONTROLLERS in kind:
        return CONTROLLER_HANDLERS
    table = {key: served for key, served in HANDLERS.items() if served.listeners & kind}
    if ListenerKind.BROKERS in kind:
        return table
    return {
        key: served
        if served.of_brokers_since is None
        else served._replace(max_version=min(served.max_version, served.of_brokers_since - 1))
        for key, served in table.items()
    }
