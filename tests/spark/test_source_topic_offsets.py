"""The driver's questions to a cluster that does not always know the answer at once: a made-up admin, no sleeping."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from semel.client.admin.outcome import AdminErrors
from semel.client.errors import NotAuthorised, RetriableError, SemelError, TimedOut, UnknownTopic
from semel.client.metadata import Partition, Topic, TopicPartition
from semel.client.values import OffsetAndTimestamp
from semel.spark.offsets import LATEST
from semel.spark.source_options import SourceOptions, stream_options
from semel.spark.topic_offsets import TopicOffsets

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def topics(*partitions: TopicPartition, topic_id: bytes = b"1" * 16) -> dict[str, Topic]:
    found: dict[str, Topic] = {}
    for name, number in partitions:
        known = found.get(name, Topic(name, topic_id))
        found[name] = known._replace(partitions={**known.partitions, number: Partition(number, 0)})
    return found


class FakeAdmin:
    """Gives the answers that it was told to, one after the other; the last one again and again."""

    def __init__(self, described: list[Any], listed: list[Any] | None = None) -> None:
        self.described = described
        self.listed = listed or [{}]
        self.asked: list[Any] = []

    def __call__(self, **settings: Any) -> FakeAdmin:
        return self

    def describe_topics(self, names: Iterable[str]) -> Mapping[str, Topic]:
        return self._next(self.described)

    def list_topics(self) -> Mapping[str, Topic]:
        return self._next(self.described)

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation_level: str
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        self.asked.append((dict(wanted), isolation_level))
        offsets = self._next(self.listed)
        return {place: OffsetAndTimestamp(offsets[place], -1, -1) for place in wanted}

    def _next(self, answers: list[Any]) -> Any:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def options(**given: str) -> SourceOptions:
    named = {"subscribe": "a"} if "subscribePattern" not in given and "subscribe" not in given else {}
    return stream_options({"kafka.bootstrap.servers": "nowhere:1", **named, **given})


class Pauses(list[float]):
    def __call__(self, pause_s: float) -> None:
        self.append(pause_s)


def asked_of(admin: FakeAdmin, **given: str) -> tuple[TopicOffsets, Pauses]:
    pauses = Pauses()
    return TopicOffsets(options(**given), connect=admin, sleep=pauses), pauses  # type: ignore[arg-type]


def test_a_partition_that_was_there_before_is_looked_for_again_before_it_counts_as_gone() -> None:
    cluster, pauses = asked_of(FakeAdmin([topics(A0), topics(A0, A1)]))

    assert cluster.partitions([A0, A1]) == {A0, A1}
    assert pauses == [1.0]

    cluster, pauses = asked_of(FakeAdmin([topics(A0)]), **{"fetchOffset.retryIntervalMs": "50"})
    assert cluster.partitions([A0, A1]) == {A0}
    assert pauses == [0.05, 0.05]


def test_an_end_before_what_was_read_is_asked_for_again() -> None:
    admin = FakeAdmin([topics(A0, A1)], [{A0: 5, A1: 9}, {A0: 12}])
    cluster, pauses = asked_of(admin)

    assert cluster.latest([A0, A1], {A0: 10, A1: 9}) == {A0: 12, A1: 9}
    assert [wanted for wanted, _ in admin.asked] == [{A0: LATEST, A1: LATEST}, {A0: LATEST}]
    assert len(pauses) == 1

    cluster, pauses = asked_of(FakeAdmin([topics(A0)], [{A0: 5}]))
    assert cluster.latest([A0], {A0: 10}) == {A0: 5}
    assert len(pauses) == 2


def test_the_end_is_that_of_committed_records() -> None:
    admin = FakeAdmin([topics(A0)], [{A0: 5}])
    cluster, _ = asked_of(admin)
    cluster.latest([A0], {})

    assert admin.asked == [({A0: LATEST}, "read_committed")]


@pytest.mark.parametrize(
    "error",
    [RetriableError("not now"), AdminErrors({A0: TimedOut("slow"), A1: RetriableError("busy")}, {})],
    ids=["one", "several"],
)
def test_what_may_pass_is_tried_again_as_often_as_the_options_say(error: SemelError) -> None:
    cluster, pauses = asked_of(FakeAdmin([error, error, topics(A0)]))
    assert cluster.partitions() == {A0}
    assert len(pauses) == 2

    cluster, _ = asked_of(FakeAdmin([error, error, topics(A0)]), **{"fetchOffset.numRetries": "2"})
    with pytest.raises(RetriableError):
        cluster.partitions()


@pytest.mark.parametrize("error", [NotAuthorised("no"), UnknownTopic("which?")])
def test_what_will_not_pass_is_told_at_once(error: SemelError) -> None:
    cluster, pauses = asked_of(FakeAdmin([error, topics(A0)]))

    with pytest.raises(type(error)):
        cluster.partitions()
    assert pauses == []


def test_of_several_topics_the_missing_one_is_named_unless_it_was_known() -> None:
    missing = AdminErrors({"b": UnknownTopic("there is no b")}, topics(A0))

    cluster, _ = asked_of(FakeAdmin([missing]), subscribe="a,b")
    with pytest.raises(UnknownTopic, match="there is no b"):
        cluster.partitions([A0])
    assert cluster.partitions([A0, B0]) == {A0}
    assert cluster.partitions([A0], may_be_missing=True) == {A0}


def test_another_error_beside_a_missing_topic_is_told() -> None:
    errors = AdminErrors({"b": UnknownTopic("there is no b"), "c": NotAuthorised("not for you")}, topics(A0))
    cluster, _ = asked_of(FakeAdmin([errors]), subscribe="a,b,c")

    with pytest.raises(NotAuthorised):
        cluster.partitions([A0, B0])


def test_a_topic_with_another_id_was_created_again() -> None:
    cluster, _ = asked_of(FakeAdmin([topics(A0), topics(A0, topic_id=b"2" * 16)]))

    cluster.partitions()
    assert cluster.recreated == set()
    cluster.partitions()
    assert cluster.recreated == {"a"}


def test_a_pattern_is_looked_for_anywhere_in_a_name_as_sparks_own_source_does() -> None:
    found = topics(A0, B0, TopicPartition("xay", 0))
    cluster, _ = asked_of(FakeAdmin([found]), subscribePattern="a")

    assert cluster.partitions() == {A0, TopicPartition("xay", 0)}


def test_a_cluster_that_never_answered_is_not_asked_three_times_and_one_that_has_is() -> None:
    asked: list[dict[str, Any]] = []

    def nobody(**settings: Any) -> FakeAdmin:
        asked.append(settings)
        raise RetriableError("nothing listens there")

    cluster = TopicOffsets(options(subscribe="a"), connect=nobody, sleep=lambda s: None)  # type: ignore[arg-type]
    with pytest.raises(RetriableError):
        cluster.partitions()
    assert [settings["bootstrap_timeout_ms"] for settings in asked] == [3_000]

    patient = options(**{"subscribe": "a", "kafka.bootstrap.timeout.ms": "60000"})
    cluster = TopicOffsets(patient, connect=nobody, sleep=lambda s: None)  # type: ignore[arg-type]
    with pytest.raises(RetriableError):
        cluster.partitions()
    assert asked[-1]["bootstrap_timeout_ms"] == "60000"
