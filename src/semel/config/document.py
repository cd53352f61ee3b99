"""Writes docs/settings.md from the declarations: `python -m semel.config.document > docs/settings.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from semel.config.accepted_settings import ACCEPTED
from semel.config.broker_settings import CLEANER, CONNECTIONS, LOGS, MONITORING, REPLICATION, TOPICS
from semel.config.coordinator_settings import GROUPS, OFFSETS, TRANSACTIONS
from semel.config.group_settings import GROUP_SETTINGS
from semel.config.load import variable_of
from semel.config.node_settings import NODE
from semel.config.security_settings import SECURITY
from semel.config.settings import Setting
from semel.config.topic_settings import TOPIC_SETTINGS

SECTIONS = {
    "Node": NODE,
    "Monitoring": MONITORING,
    "Connections and requests": CONNECTIONS,
    "Security": SECURITY,
    "Topics": TOPICS,
    "Logs": LOGS,
    "Compaction": CLEANER,
    "Replication": REPLICATION,
    "Groups": GROUPS,
    "Committed offsets": OFFSETS,
    "Producers and transactions": TRANSACTIONS,
    "Kafka's, taken and not used": ACCEPTED,
}

OPENING = f"""\
# Settings

This page is written by `python -m semel.config.document` from the declarations in `src/semel/config`.

Names, types, defaults and bounds are those of Apache Kafka 4; where a default differs, Kafka's stands beside it. A
setting of a node comes from, strongest first:

1. a flag;
2. a variable: `{variable_of("log.segment.bytes")}` sets `log.segment.bytes`;
3. a TOML file, with Kafka's names as quoted keys, as dotted keys, or as tables:

   ```toml
   "max.connections" = 500
   "max.connections.per.ip" = 50

   [log]
   segment.bytes = 1073741824
   cleanup.policy = ["compact", "delete"]
   ```

   (TOML does not let a dotted key be a value and a table at once, so of `max.connections` and
   `max.connections.per.ip` at least one is quoted.)
4. the default.

An unknown name is refused, and so is a wrong value, even where a stronger one hides it. A variable that
begins with `SEMEL_` and is nearly the name of a setting is refused too; any other has no effect, and the log says so.

Settings marked *running* can be changed while the node runs (IncrementalAlterConfigs), for one node or for all; the
others are read when it starts. All topic settings can be changed while the topic is in use.
"""


def page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield OPENING
    yield "## Settings of a node"
    for title, settings in SECTIONS.items():
        yield f"\n### {title}\n"
        yield from _broker_table(settings)
    yield "\n## Settings of a topic\n"
    yield "A topic that does not set one takes the node's: of the settings named last, the first that is set.\n"
    yield from _table_of_own(TOPIC_SETTINGS.values())
    yield "\n## Settings of a group\n"
    yield (
        "Those of a KIP-848 group, which need not be there yet (`kafka-configs --entity-type groups`). A value lies "
        "between the bounds that the node sets, such as `group.consumer.min.session.timeout.ms`; members hear of a "
        "change with their next heartbeat.\n"
    )
    yield from _table_of_own(GROUP_SETTINGS.values())


def _broker_table(settings: Iterable[Setting]) -> Iterator[str]:
    yield "| setting | type | default | allowed | change | |"
    yield "|---|---|---|---|---|---|"
    for setting in settings:
        change = "restart" if setting.needs_restart else "running"
        yield _row(setting, _default(setting), change, setting.sentence)


def _table_of_own(settings: Iterable[Setting]) -> Iterator[str]:
    yield "| setting | type | allowed | | the node's |"
    yield "|---|---|---|---|---|"
    for setting in settings:
        nodes = ", ".join(f"`{synonym.name}`" for synonym in setting.synonyms) or "none"
        yield _row(setting, None, setting.sentence, nodes)


def _row(setting: Setting, default: str | None, *rest: str) -> str:
    cells = [f"`{setting.name}`", setting.kind.name.lower()]
    if default is not None:
        cells.append(default)
    return "| " + " | ".join([*cells, setting.allowed.replace("|", "\\|"), *rest]) + " |"


def _default(setting: Setting) -> str:
    text = setting.text(setting.default)
    shown = "not set" if text is None else f"`{text}`" if text else "empty"
    return shown if setting.kafka_default is None else f"{shown} (Kafka: `{setting.kafka_default}`)"


if __name__ == "__main__":
    sys.stdout.write(page())
