"""`semel log accept-loss`: opens a data directory as a node does, and gives up what is missing of one partition."""

from __future__ import annotations

import asyncio
import os

from semel.cli.failures import CommandFailed, Exit, NotFound, WrongCall
from semel.cli.output import Output
from semel.config import BrokerConfig, ConfigError, TopicConfig, topic_config
from semel.host.api import AlreadyLocked
from semel.host.real import real_host
from semel.log.errors import BrokenLog, CorruptSegment
from semel.log.inspection.directory_check import is_root
from semel.log.inspection.files import RealFiles, partition_of
from semel.log.inspection.metadata import METADATA_TOPIC, METADATA_TOPIC_ID, read_topics
from semel.log.store import LogStore


def accept_loss(output: Output, path: str) -> int:
    path = path.rstrip("/")
    root, found = os.path.dirname(os.path.abspath(path)), partition_of(os.path.abspath(path))
    if found is None or not is_root(RealFiles(), root):
        raise WrongCall(f"{path}: give the directory of a partition in a data directory, such as ./data/payments-0")
    topic, partition = found
    topic_id, config = _topic(root, topic)
    losses = asyncio.run(_accept(root, topic, partition, topic_id, config))
    if output.is_json:
        output.json({"path": path, "was_damaged": losses is not None, "given_up": losses or []})
    elif losses is None:
        output.line(f"Nothing is missing in {path}: a node serves it.")
    else:
        output.line(f"{path} can be served again, without:")
        for loss in losses:
            output.line(f"  {loss}")
    return Exit.OK


def _topic(root: str, topic: str) -> tuple[str, TopicConfig]:
    """Its id and its settings, as the metadata in the directory say."""
    if topic == METADATA_TOPIC:
        return METADATA_TOPIC_ID, topic_config({}, BrokerConfig())
    topics = read_topics(RealFiles(), root)
    if topics is None or topic not in topics.ids:
        raise NotFound(f"the metadata in {root} know no topic {topic!r}")
    try:
        return topics.ids[topic], topic_config(topics.settings.get(topic, {}), BrokerConfig())
    except ConfigError:
        return topics.ids[topic], topic_config({}, BrokerConfig())


async def _accept(root: str, topic: str, partition: int, topic_id: str, config: TopicConfig) -> list[str] | None:
    failures: list[BaseException] = []
    host = real_host()
    store = LogStore(host, root, BrokerConfig(), failures.append)
    try:
        store.open()
        try:
            losses = store.accept_loss(topic, partition, topic_id, config)
        finally:
            await store.close()  # if the last stop was clean, it still is
    except AlreadyLocked as error:
        raise CommandFailed(f"{error}: a node is at work there, stop it first") from error
    except (BrokenLog, CorruptSegment) as error:
        raise CommandFailed(str(error)) from error
    except OSError as error:
        raise CommandFailed(f"{error.filename or root}: {error.strerror}") from error
    finally:
        host.close()
    if failures:
        raise CommandFailed(str(failures[0]))
    return losses
