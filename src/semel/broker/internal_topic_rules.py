"""What the topics in which coordinators keep their state are like, and what is not done to them.

Replica counts are Kafka's, but never more than the cluster has nodes, unless somebody has set them.

Whoever may change topics could otherwise end every group and transaction by one request. So these two are neither
deleted nor given more partitions (a group lives in the partition that its name hashes to), and their settings change
only as long as nothing is lost by it. Kafka leaves that to its authoriser; the code of a refusal is the one that it
gives to DeleteRecords and Produce on them. The controller's side of a channel refuses, for all nodes.
"""

from __future__ import annotations

from collections.abc import Mapping

from semel.config import BrokerConfig, ConfigError, ConfigSource, Scope, checked_overrides, topic_config
from semel.controller.controller import DEFAULT_COUNT, NewTopic
from semel.controller.defaults import min_insync_replicas
from semel.controller.image import MetadataImage
from semel.coordinator.topic_names import INTERNAL_TOPICS, OFFSETS_TOPIC
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode

# Any record of a coordinator fits into such a segment.
_LEAST_SEGMENT_BYTES = 1 << 20
# Kafka's default of max.message.bytes.
_LEAST_MESSAGE_BYTES = 1_048_588


def _made_by_settings(name: str, config: BrokerConfig, image: MetadataImage) -> NewTopic:
    """What an internal topic is like when nobody says."""
    prefix = "offsets.topic" if name == OFFSETS_TOPIC else "transaction.state.log"
    replicas = config.int(f"{prefix}.replication.factor")
    if not _is_factor_given(name, config):
        replicas = min(replicas, 1 if config.layout.is_alone else len(image.brokers))
    if name == OFFSETS_TOPIC:
        in_sync = min_insync_replicas(image, config, replicas)
        if in_sync is None:
            in_sync = 1 if config.layout.is_alone else config.int("min.insync.replicas")
    else:
        in_sync = config.int("transaction.state.log.min.isr")
    settings = {
        "cleanup.policy": "compact",
        # Batches stay as the coordinator wrote them.
        "compression.type": "producer",
        "segment.bytes": str(config.int(f"{prefix}.segment.bytes")),
        "min.insync.replicas": str(min(in_sync, replicas)),
    }
    return NewTopic(name, config.int(f"{prefix}.num.partitions"), replicas, configs=settings)


def _is_factor_given(name: str, config: BrokerConfig) -> bool:
    """Whether somebody has said how many replicas this topic is to have: then it gets as many, or is not made."""
    setting = f"{'offsets.topic' if name == OFFSETS_TOPIC else 'transaction.state.log'}.replication.factor"
    return not config.layout.is_alone and config.source(setting) is not ConfigSource.DEFAULT


def _refuse_too_few(name: str, replicas: int, image: MetadataImage) -> None:
    """A topic that is made while brokers are still on their way would have its replicas on the first ones for ever."""
    active = sum(image.is_active(node_id) for node_id in image.brokers)
    if active < replicas:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{name} is to have {replicas} replicas by the settings, and {active} brokers are there: it can be made "
            "when there are enough",
        )


def refuse_if_internal(name: str, what: str) -> None:
    """Raises Refused: `what` is not done to such a topic."""
    if name in INTERNAL_TOPICS:
        raise Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} holds the state of the coordinators, it cannot be {what}"
        )


def new_topic(wanted: NewTopic, config: BrokerConfig, image: MetadataImage) -> NewTopic:
    """An internal topic as somebody asks for it: what the node itself would make, with other settings where they do no
    harm. Raises Refused for anything else."""
    made = _made_by_settings(wanted.name, config, image)
    count = len(wanted.assignments) or wanted.partitions
    if count not in (DEFAULT_COUNT, made.partitions):
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"{wanted.name} has {made.partitions} partitions by the settings of this node, not {count}",
        )
    configs = {**made.configs, **wanted.configs}
    try:
        checked = checked_overrides(configs, Scope.TOPIC, broker=config)
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from error
    check_settings(wanted.name, config, image, checked)
    if wanted.assignments:
        return NewTopic(wanted.name, assignments=wanted.assignments, configs=configs)
    replicas = wanted.replication_factor
    if replicas == DEFAULT_COUNT:
        replicas = made.replication_factor
        if _is_factor_given(wanted.name, config):
            _refuse_too_few(wanted.name, replicas, image)
    return NewTopic(wanted.name, made.partitions, replicas, configs=configs)


def check_settings(name: str, config: BrokerConfig, image: MetadataImage, overrides: Mapping[str, str]) -> None:
    """Raises Refused when a topic of a coordinator with these settings could lose what was acknowledged, or could not
    take what has to be written."""
    wanted, of_the_node = topic_config(overrides, config), topic_config({}, config)
    made = _made_by_settings(name, config, image)
    least_segment = min(_LEAST_SEGMENT_BYTES, int(made.configs["segment.bytes"] or 0))
    least_message = min(_LEAST_MESSAGE_BYTES, of_the_node.max_message_bytes)
    most_unflushed = of_the_node.flush_messages
    for setting, is_right, allowed in (
        ("cleanup.policy", wanted.cleanup_policy == {"compact"}, "compact: it forgets by key, not by age"),
        ("segment.bytes", wanted.segment_bytes >= least_segment, f"at least {least_segment}"),
        ("max.message.bytes", wanted.max_message_bytes >= least_message, f"at least {least_message}"),
        ("flush.messages", wanted.flush_messages <= most_unflushed, f"at most the node's own, {most_unflushed}"),
        (
            "unclean.leader.election.enable",
            wanted.unclean_leader_election_enable <= of_the_node.unclean_leader_election_enable,
            "false, as for the node: what is acknowledged could be lost",
        ),
    ):
        if not is_right:
            raise Refused(ErrorCode.INVALID_CONFIG, f"{setting} of {name}, the state of coordinators, is {allowed}")
