"""Writes docs/metrics.md from the declarations: `python -m semel.metrics.document > docs/metrics.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from semel.metrics.client_metrics import CONSUMER, PRODUCER
from semel.metrics.counts_kernel import BOUNDS_S
from semel.metrics.declaration import Metric
from semel.metrics.node_metrics import SECTIONS

CLIENT_SECTIONS = {"Producers of the Python client": PRODUCER, "Consumers of the Python client": CONSUMER}

OPENING = f"""\
# Metrics

This page is written by `python -m semel.metrics.document` from the declarations in `src/semel/metrics`.

`semel serve --metrics 9644` (or the setting `metrics.listener`) serves three pages over HTTP, on 127.0.0.1 unless a
host is given. It needs `pip install 'semel[metrics]'`.

| page | |
|---|---|
| `/metrics` | all metrics below, in OpenMetrics; in the older text format for readers that ask for that alone |
| `/health` | 200 as long as the node works: restart it when this does not answer |
| `/ready` | 200 while it serves clients, 503 with the reason while it starts and stops |

The node makes the text itself, in steps of at most 5 ms with clients served in between. Nobody logs in there: open it
to trusted networks only.

Names are those of Kafka's usual exporters where these have one: of the JMX exporter with Kafka's own rules, and of
kafka_exporter for groups. So dashboards made for Kafka show most of what they are for. Names that begin with `semel_`
are ours. A counter only grows while the node runs; a topic that is deleted takes its counters with it.

## How many time series there are

- Requests: at most the number of APIs (about 60), times {len(BOUNDS_S) + 1} buckets for `semel_request_seconds`.
- Topics, partitions and groups: as many as there are, and at most `metrics.max.series` (20,000) of one metric. Topics
  that were made first are shown first. `semel_metrics_left_out` tells of which metric how many are missing.
- Nothing carries the name of a client, a member, a principal or a transactional id: those are without bound.

Buckets of histograms end at {BOUNDS_S[0] * 1000:g} ms and, each at twice the one before, at up to {BOUNDS_S[-1]:.0f} s.

`producer.metrics()` and `consumer.metrics()` of the Python client give a dict: the metrics at the end of this page
without their prefix, with averages. `semel.client.prometheus.register(producer)` adds them to the registry of
prometheus-client.

The process itself (memory, processor time, descriptors) is told of under the usual names: `process_...`.
"""


def page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield OPENING
    for title, declared in {**SECTIONS, **CLIENT_SECTIONS}.items():
        yield f"## {title}\n"
        yield from _table(declared)
        yield ""


def _table(declared: Iterable[Metric]) -> Iterator[str]:
    yield "| metric | type | labels | |"
    yield "|---|---|---|---|"
    for metric in declared:
        labels = ", ".join(metric.labels) or "none"
        yield f"| `{metric.shown_name}` | {metric.type.value} | {labels} | {metric.sentence} |"


if __name__ == "__main__":
    sys.stdout.write(page().rstrip("\n") + "\n")
