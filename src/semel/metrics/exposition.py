"""Metrics as text, by prometheus-client, a few samples at a time: whoever waits meanwhile is served in between.

prometheus-client is optional (`pip install 'semel[metrics]'`): this module is loaded where somebody asks for metrics.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from prometheus_client import exposition, openmetrics
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.process_collector import ProcessCollector

from semel.metrics.counts_kernel import BOUNDS_S, Times
from semel.metrics.declaration import Metric, Type
from semel.metrics.node_metrics import LEFT_OUT

# Collected and encoded in about half a millisecond.
SAMPLES_AT_ONCE = 50
_HISTOGRAMS_AT_ONCE = 2  # each is a line for every bucket

Value = float | Times
# The values of its labels, in the order of the declaration, and its own.
Sample = tuple[tuple[str, ...], Value]


class Measured(NamedTuple):
    metric: Metric
    samples: Iterable[Sample]


class TextForm(NamedTuple):
    encode: Callable[[Any], bytes]
    content_type: str
    end: bytes


def text_form(accept: str) -> TextForm:
    """OpenMetrics, unless the reader asks for the older text format alone."""
    if "application/openmetrics-text" not in accept and "text/plain" in accept:
        return TextForm(exposition.generate_latest, exposition.CONTENT_TYPE_PLAIN_0_0_4, b"")
    latest = openmetrics.exposition
    return TextForm(latest.generate_latest, latest.CONTENT_TYPE_LATEST, b"# EOF\n")


async def exposed(
    measured: Iterable[Measured | None], form: TextForm, most_series: int, pause: Callable[[], Awaitable[None]]
) -> list[bytes]:
    """The text, in parts. `pause` lets others have their turn when it is time; it is called after every step of
    `measured`, which yields None where it has nothing to show yet. `most_series`: of one metric."""
    parts: list[bytes] = []
    left_out: list[Sample] = []
    for one in measured:
        if one is None:
            await pause()
            continue
        metric, left = one.metric, iter(one.samples)
        at_once = _HISTOGRAMS_AT_ONCE if metric.type is Type.HISTOGRAM else SAMPLES_AT_ONCE
        shown, is_first = 0, True
        while shown < most_series:
            some = list(islice(left, min(at_once, most_series - shown)))
            if not some:
                break
            parts.append(_text(metric, some, form, is_first=is_first))
            shown, is_first = shown + len(some), False
            await pause()
        missing = 0
        while some := list(islice(left, SAMPLES_AT_ONCE)):
            missing += len(some)
            await pause()
        if missing:
            left_out.append(((metric.shown_name,), missing))
    parts.append(_of_process(form))
    if left_out:
        parts.append(_text(LEFT_OUT, left_out, form, is_first=True))
    parts.append(form.end)
    return parts


def _of_process(form: TextForm) -> bytes:
    """Memory, processor time and descriptors, as every program with this library tells of them."""
    return b"".join(
        form.encode(_Collected(family)).removesuffix(form.end) for family in ProcessCollector(registry=None).collect()
    )


class _Collected:
    """What the encoder asks for a registry."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterator[Family]:
        yield self._family


def _text(metric: Metric, samples: list[Sample], form: TextForm, *, is_first: bool) -> bytes:
    text = form.encode(_Collected(family_of(metric, samples)))
    if form.end:
        text = text.removesuffix(form.end)
    if not is_first:  # name, type and sentence of a metric stand once
        text = b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"# "))
    return text


def family_of(metric: Metric, samples: list[Sample]) -> Family:
    family = Family(metric.name, metric.sentence, metric.type.value)
    for values, value in samples:
        labels = dict(zip(metric.labels, values, strict=True))
        if isinstance(value, Times):
            _add_histogram(family, labels, value)
        else:
            family.add_sample(metric.shown_name, labels, value)
    return family


def _add_histogram(family: Family, labels: dict[str, str], times: Times) -> None:
    total = 0
    for bound, count in zip([*map(str, BOUNDS_S), "+Inf"], times.counts, strict=True):
        total += count
        family.add_sample(f"{family.name}_bucket", {**labels, "le": bound}, total)
    family.add_sample(f"{family.name}_count", labels, total)
    family.add_sample(f"{family.name}_sum", labels, times.total_ns / 1e9)


def single(metric: Metric, value: float) -> Measured:
    """A metric without labels."""
    return Measured(metric, [((), value)])
