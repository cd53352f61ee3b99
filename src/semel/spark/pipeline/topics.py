"""Whether the topics of a pipeline are there, asked before anything is read; made if the file wants it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches

from semel.client.admin.values import NewTopic
from semel.client.errors import BrokerRefused, SemelError, TopicExists
from semel.spark.connection_options import client_settings
from semel.spark.pipeline.definition import Pipeline, TopicSink
from semel.spark.pipeline.errors import PipelineError, PipelineRefused
from semel.sync.admin import Admin

_SHOWN = 10
_TIMEOUT_MS = 15_000


def check_topics(pipeline: Pipeline, address: str, tell: Callable[[str], None]) -> None:
    """Raises PipelineRefused for topics that are not there, PipelineError if nobody answers."""
    settings = {"request_timeout_ms": _TIMEOUT_MS, **client_settings(pipeline.kafka_options(address))}
    try:
        with Admin(**settings) as admin:
            existing = set(admin.list_topics())
            problems = []
            for place, topic in _needed(pipeline):
                if topic in existing:
                    continue
                if pipeline.create_topics:
                    _create(admin, topic, tell)
                    existing.add(topic)
                else:
                    problems.append(f"{pipeline.path}: {place}: {_missing(topic, address, existing)}")
            problems += _patterns_without_topics(pipeline, existing)
    except BrokerRefused as error:
        raise PipelineRefused(f"{pipeline.path}: topics at {address}: {error}") from error
    except SemelError as error:
        raise PipelineError(f"the cluster at {address} does not answer: {error}") from error
    if problems:
        raise PipelineRefused(*problems)


def _needed(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    for number, source in enumerate(pipeline.sources, 1):
        place = "source.topics" if len(pipeline.sources) == 1 else f"source[{number}].topics"
        yield from ((place, topic) for topic in source.topics)
    if isinstance(pipeline.sink, TopicSink):
        yield "sink.topic", pipeline.sink.topic
    if pipeline.dead_letter_topic is not None:
        yield "dead_letter_topic", pipeline.dead_letter_topic


def _create(admin: Admin, topic: str, tell: Callable[[str], None]) -> None:
    try:
        admin.create_topics(NewTopic(topic))
    except TopicExists:
        return  # by somebody else at the same time
    tell(f"topic {topic} did not exist, and was made")


def _missing(topic: str, address: str, existing: set[str]) -> str:
    shown = sorted(name for name in existing if not name.startswith("__"))
    near = get_close_matches(topic, shown, n=1)
    hint = f"the nearest is {near[0]!r}" if near else f"there are: {', '.join(shown[:_SHOWN]) or 'none'}"
    more = f" and {len(shown) - _SHOWN} more" if not near and len(shown) > _SHOWN else ""
    return f"topic {topic!r} does not exist at {address}; {hint}{more}; create_topics = true would make it"


def _patterns_without_topics(pipeline: Pipeline, existing: set[str]) -> Iterator[str]:
    for number, source in enumerate(pipeline.sources, 1):
        if source.pattern is not None and not any(re.search(source.pattern, name) for name in existing):
            place = "source.pattern" if len(pipeline.sources) == 1 else f"source[{number}].pattern"
            yield f"{pipeline.path}: {place}: no topic has a name in which {source.pattern!r} is found"
