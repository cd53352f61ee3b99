"""Levels: in which versions records are written, and what a version does not carry; metadata transactions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.controller.levels import (
    LEVEL_OF_A_CLUSTER,
    LEVEL_OF_A_NODE_ALONE,
    SUPPORTED_FEATURES,
    features_at,
    is_lossless,
    versioned,
)
from semel.controller.metadata_transactions import HeldRecords
from semel.wire.spec.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)

DIRECTORY = b"\x07" * 16


@pytest.mark.parametrize(
    ("level", "versions"),
    [
        (7, (1, 1, 0, 0, 0)),
        (8, (2, 1, 0, 0, 0)),
        (16, (2, 1, 0, 0, 0)),
        (17, (3, 2, 1, 1, 0)),
        (21, (3, 2, 1, 1, 0)),
        (23, (3, 2, 2, 2, 0)),
        (27, (3, 2, 2, 2, 0)),
        (30, (4, 3, 2, 2, 0)),
    ],
)
def test_the_level_decides_in_which_versions_records_are_written(level: int, versions: tuple[int, ...]) -> None:
    records: list[MetadataRecord] = [
        RegisterBrokerRecord(),
        BrokerRegistrationChangeRecord(),
        PartitionRecord(),
        PartitionChangeRecord(),
        TopicRecord(),
    ]
    assert tuple(version for _, version in versioned(records, level)) == versions


@pytest.mark.parametrize("level", [7, 8, 17, 23, 27, 30])
def test_what_a_version_does_not_carry_is_not_in_the_record_either(level: int) -> None:
    """The image is made from the record as it will be read again, or a restart would change it."""
    records: list[MetadataRecord] = [
        RegisterBrokerRecord(log_dirs=[DIRECTORY], cordoned_log_dirs=[], in_controlled_shutdown=True),
        BrokerRegistrationChangeRecord(log_dirs=[DIRECTORY], cordoned_log_dirs=[]),
        PartitionRecord(replicas=[1], directories=[DIRECTORY], eligible_leader_replicas=[1], last_known_elr=[2]),
        PartitionChangeRecord(directories=[DIRECTORY], eligible_leader_replicas=[], last_known_elr=[2]),
    ]
    for record, version in versioned(records, level):
        assert decode_metadata_record(encode_metadata_record(record, version)) == record
    assert records[0] == RegisterBrokerRecord(
        log_dirs=[DIRECTORY], cordoned_log_dirs=[], in_controlled_shutdown=True
    ), "the caller's record was changed"


def test_a_level_counts_from_its_own_record_on() -> None:
    records = [PartitionRecord(), FeatureLevelRecord(name="metadata.version", feature_level=17), PartitionRecord()]
    assert [version for _, version in versioned(records, 7)] == [0, 0, 1]


def test_the_levels_of_new_logs_are_supported() -> None:
    for level in (LEVEL_OF_A_NODE_ALONE, LEVEL_OF_A_CLUSTER):
        for name, finalized in features_at(level).items():
            assert SUPPORTED_FEATURES[name].least <= finalized <= SUPPORTED_FEATURES[name].most


def test_eligible_leader_replicas_are_kept_from_the_level_on_at_which_kafka_keeps_them() -> None:
    name = "eligible.leader.replicas.version"
    assert [name in features_at(level) for level in (7, 17, 21, 25, 26, 27, 30)] == [False] * 4 + [True] * 3


@pytest.mark.parametrize(
    ("lower", "upper", "lossless"),
    [(7, 7, True), (7, 8, False), (8, 10, True), (17, 21, True), (21, 27, False), (23, 29, True), (29, 30, False)],
)
def test_going_back_loses_what_a_level_between_has_brought(lower: int, upper: int, lossless: bool) -> None:
    assert is_lossless(lower, upper) is lossless


# -- metadata transactions

BEGIN, END, ABORT = BeginTransactionRecord(), EndTransactionRecord(), AbortTransactionRecord()
A, B = ConfigRecord(name="a"), ConfigRecord(name="b")


@pytest.mark.parametrize(
    ("records", "counting"),
    [
        ([A, B], [A, B]),
        ([BEGIN, A, B], []),
        ([BEGIN, A, B, END], [A, B]),
        ([BEGIN, A, ABORT], []),
        ([A, BEGIN, B, ABORT, A], [A, A]),
        ([A, BEGIN, B, END, BEGIN, A], [A, B]),
    ],
)
def test_a_metadata_transaction_counts_when_it_ends(
    records: list[MetadataRecord], counting: list[MetadataRecord]
) -> None:
    held = HeldRecords()
    assert held.admit(records) == counting
    assert held.is_open is (BEGIN in records and records[-1] is not END and ABORT not in records[-2:])


@given(st.lists(st.sampled_from([A, B, NoOpRecord()])), st.lists(st.booleans()), st.booleans())
def test_it_does_not_matter_how_a_transaction_is_cut_into_batches(
    records: list[MetadataRecord], cuts: list[bool], is_aborted: bool
) -> None:
    history: list[MetadataRecord] = [A, BEGIN, *records, ABORT if is_aborted else END, B]
    held, counting, batch = HeldRecords(), list[MetadataRecord](), list[MetadataRecord]()
    for number, record in enumerate(history):
        batch.append(record)
        if number < len(cuts) and cuts[number]:
            counting += held.admit(batch)
            batch = []
    counting += held.admit(batch)
    assert counting == [A, *([] if is_aborted else records), B]
    assert not held.is_open


@pytest.mark.parametrize("records", [[END], [ABORT], [BEGIN, BEGIN], [BEGIN, END, END]])
def test_transactions_that_do_not_begin_and_end_in_turn_are_a_broken_log(records: list[MetadataRecord]) -> None:
    with pytest.raises(ValueError, match="metadata transaction"):
        HeldRecords().admit(records)
