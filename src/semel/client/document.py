"""Writes docs/client-settings.md from the declarations: `python -m semel.client.document > docs/client-settings.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from semel.client.admin.settings import AdminSettings
from semel.client.consumer.settings import ConsumerSettings
from semel.client.producer.settings import ProducerSettings
from semel.client.settings import ConnectionSettings, Declared, declared

OPENING = """\
# Settings of the client

This page is written by `python -m semel.client.document` from the declarations in `src/semel/client`.

Settings are keyword arguments of `Producer`, `Consumer` and `Admin`. Kafka's own names, with dots, are accepted too,
and values may be texts, so that a properties file can be passed on:

```python
import semel

producer = semel.Producer(bootstrap_servers="localhost:9092", linger_ms=5)
same = semel.Producer(**{"bootstrap.servers": "localhost:9092", "linger.ms": "5"})
```

An unknown name is refused with the nearest known one, a value that is not allowed with what is, and two settings that
contradict each other with the names of both. Where a default differs from Kafka's, Kafka's stands beside it.
"""


def page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    common = declared(ConnectionSettings)
    yield OPENING
    yield "## For all\n"
    yield from _table(common.values())
    for title, cls in (("Producer", ProducerSettings), ("Consumer", ConsumerSettings), ("Admin", AdminSettings)):
        yield f"\n## {title}\n"
        yield from _table(entry for name, entry in declared(cls).items() if name not in common)


def _table(entries: Iterable[Declared]) -> Iterator[str]:
    yield "| setting | default | allowed | |"
    yield "|---|---|---|---|"
    for entry in entries:
        allowed = entry.setting.allowed if entry.has_text else "an object"
        cells = [f"`{entry.keyword}`", _default(entry), allowed.replace("|", "\\|"), entry.option.sentence]
        if entry.option.aliases:
            cells[0] += f" (also {', '.join(f'`{name}`' for name in entry.option.aliases)})"
        yield "| " + " | ".join(cells) + " |"


def _default(entry: Declared) -> str:
    text = entry.setting.text(entry.setting.default)
    shown = "not set" if text is None else f"`{text}`" if text else "empty"
    kafka = entry.option.kafka_default
    return shown if kafka is None else f"{shown} (Kafka: `{kafka}`)"


if __name__ == "__main__":
    sys.stdout.write(page())
