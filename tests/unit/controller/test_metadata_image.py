"""The image of the metadata log: replay, snapshots, and that both come to the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.controller.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from semel.controller.levels import versioned
from semel.controller.snapshot import decode_snapshot, encode_snapshot
from semel.quorum.snapshot_files import SnapshotId, snapshot_ids
from semel.records.errors import RecordError
from semel.sim.disk import SimDisk
from semel.wire.errors import WireError
from semel.wire.spec.metadata_records import (
    NO_LEADER_CHANGE,
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntityRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)

DIRECTORIES = st.sampled_from([bytes(16), b"\x07" * 16])
# Records that only snapshots need, and what takes them back.
KEPT: list[MetadataRecord] = [
    AccessControlEntryRecord(id=b"\x01" * 16, principal="User:a"),
    AccessControlEntryRecord(id=b"\x02" * 16, principal="User:b"),
    RemoveAccessControlEntryRecord(id=b"\x01" * 16),
    UserScramCredentialRecord(name="a", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096),
    RemoveUserScramCredentialRecord(name="a", mechanism=1),
    ClientQuotaRecord(entity=[QuotaEntityRecord(entity_type="user", entity_name=None)], key="k", value=1.5),
    ClientQuotaRecord(entity=[QuotaEntityRecord(entity_type="user", entity_name=None)], key="k", remove=True),
    DelegationTokenRecord(owner="a", token_id="t"),
    RemoveDelegationTokenRecord(token_id="t"),
    RegisterControllerRecord(controller_id=9, end_points=[BrokerEndpoint(name="C", host="h", port=1)]),
    UnregisterControllerRecord(controller_id=9),
    ZkMigrationStateRecord(zk_migration_state=1),
]
NAMES = st.sampled_from(["a", "b", "c.d", "x" * 30])
DIRECTORY = "/data/__cluster_metadata-0"


LEVELS = (7, 8, 17, 21, 27, 30)


@st.composite
def histories(draw: st.DrawFn) -> list[MetadataRecord]:
    """Records as a controller could have written them: nothing refers to what is not there, the level only grows, and
    no record says more than its version at that level."""
    records: list[MetadataRecord] = []
    topics: dict[str, tuple[bytes, int]] = {}
    brokers: set[int] = set()
    for number in range(draw(st.integers(0, 40))):
        kind = draw(st.integers(0, 14))
        name = draw(NAMES)
        few = st.sampled_from([None, [], [2], [2, 1]])
        if kind <= 1 and name not in topics:
            topics[name] = (bytes([1 + number]) * 16, 0)
            records.append(TopicRecord(name=name, topic_id=topics[name][0]))
        elif kind <= 3 and name in topics:
            topic_id, count = topics[name]
            topics[name] = (topic_id, count + 1)
            records.append(
                PartitionRecord(
                    partition_id=count,
                    topic_id=topic_id,
                    replicas=[1, 2],
                    isr=[1],
                    leader=1,
                    adding_replicas=draw(few) or [],
                    leader_recovery_state=draw(st.integers(0, 1)),
                    directories=[draw(DIRECTORIES), draw(DIRECTORIES)],
                    eligible_leader_replicas=draw(few),
                    last_known_elr=draw(few),
                )
            )
        elif kind == 4 and name in topics and topics[name][1]:
            records.append(
                PartitionChangeRecord(
                    partition_id=0,
                    topic_id=topics[name][0],
                    leader=draw(st.sampled_from([NO_LEADER_CHANGE, 1, 2])),
                    isr=draw(few),
                    removing_replicas=draw(few),
                    adding_replicas=draw(few),
                    leader_recovery_state=draw(st.integers(-1, 1)),
                    directories=draw(st.sampled_from([None, [bytes(16), b"\x07" * 16]])),
                    eligible_leader_replicas=draw(few),
                    last_known_elr=draw(few),
                )
            )
        elif kind == 5 and name in topics:
            records.append(RemoveTopicRecord(topic_id=topics.pop(name)[0]))
        elif kind == 6:
            resource = draw(st.sampled_from([(TOPIC_RESOURCE, name), (BROKER_RESOURCE, ""), (BROKER_RESOURCE, "1")]))
            if resource[0] == BROKER_RESOURCE or name in topics:
                value = draw(st.sampled_from([None, "1", "two"]))
                setting = draw(st.sampled_from(["k", "l"]))
                records.append(
                    ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=setting, value=value)
                )
        elif kind == 7:
            records.append(FeatureLevelRecord(name=name, feature_level=draw(st.integers(0, 3))))
        elif kind == 8:
            records.append(ProducerIdsRecord(broker_id=1, next_producer_id=1 + number * 1000))
        elif kind == 9:
            records.append(ClearElrRecord(topic_name=draw(st.sampled_from(["", name]))))
        elif kind == 10:
            records.append(FeatureLevelRecord(name="metadata.version", feature_level=LEVELS[min(number // 7, 5)]))
        elif kind == 11:
            records.append(draw(st.sampled_from(KEPT)))
        else:
            broker_id = draw(st.integers(1, 2))
            if broker_id not in brokers:
                brokers.add(broker_id)
                end_point = BrokerEndpoint(name="PLAINTEXT", host="h", port=number)
                records.append(
                    RegisterBrokerRecord(
                        broker_id=broker_id,
                        end_points=[end_point],
                        fenced=True,
                        log_dirs=[draw(DIRECTORIES)],
                        cordoned_log_dirs=draw(st.sampled_from([None, [b"\x07" * 16]])),
                    )
                )
            elif draw(st.booleans()):
                records.append(
                    BrokerRegistrationChangeRecord(
                        broker_id=broker_id,
                        broker_epoch=draw(st.integers(0, 1)),
                        fenced=draw(st.integers(-1, 1)),
                        in_controlled_shutdown=draw(st.integers(-1, 1)),
                        log_dirs=draw(st.sampled_from([(), (b"\x08" * 16,)])),
                        cordoned_log_dirs=draw(st.sampled_from([None, [], [b"\x08" * 16]])),
                    )
                )
            elif draw(st.booleans()):
                records.append(draw(st.sampled_from([FenceBrokerRecord, UnfenceBrokerRecord]))(id=broker_id))
            else:
                brokers.remove(broker_id)
                records.append(UnregisterBrokerRecord(broker_id=broker_id))
        records.append(NoOpRecord())
    return [record for record, _ in versioned(records, 7)]


def image_of(records: list[MetadataRecord]) -> MetadataImage:
    image = MetadataImage()
    for record in records:
        image.replay(record)
    return image


@given(histories())
@settings(max_examples=200, deadline=None)
def test_the_records_of_an_image_make_an_equal_image(records: list[MetadataRecord]) -> None:
    image = image_of(records)
    assert image_of(list(image.records())) == image


@given(histories())
@settings(max_examples=100, deadline=None)
def test_a_snapshot_makes_an_equal_image(records: list[MetadataRecord]) -> None:
    image = image_of(records)
    disk = SimDisk()
    disk.make_dirs(DIRECTORY)
    disk.replace_file_now(f"{DIRECTORY}/{SnapshotId(17, 3).name}", encode_snapshot(image, 3, 1_700_000_000_000))
    found = newest_snapshot(disk, DIRECTORY)
    assert found is not None
    end_offset, loaded = found
    assert end_offset == 17
    assert image_of(loaded) == image


def test_a_removed_topic_takes_its_settings_along() -> None:
    topic_id = b"\x05" * 16
    image = image_of(
        [
            TopicRecord(name="t", topic_id=topic_id),
            ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t", name="retention.ms", value="1"),
            RemoveTopicRecord(topic_id=topic_id),
        ]
    )
    assert image == MetadataImage()
    assert image.topic_by_id(topic_id) is None


def test_a_leader_epoch_grows_whenever_the_leader_is_named_even_if_it_stays_the_same() -> None:
    topic_id = b"\x05" * 16
    image = image_of(
        [
            TopicRecord(name="t", topic_id=topic_id),
            PartitionRecord(
                partition_id=0,
                topic_id=topic_id,
                replicas=[1],
                isr=[1],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
            ),
            PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1),
            PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[1]),
        ]
    )
    state = image.topics["t"].partitions[0]
    assert (state.leader, state.leader_epoch, state.partition_epoch) == (1, 1, 2)


def test_an_image_refuses_a_record_that_it_does_not_know() -> None:
    class Strange:
        pass

    with pytest.raises(ValueError, match="Strange"):
        MetadataImage().replay(Strange())  # type: ignore[arg-type]


# -- damaged snapshots


def newest_snapshot(disk: SimDisk, directory: str) -> tuple[int, list[MetadataRecord]] | None:
    for snapshot in reversed(snapshot_ids(disk, directory)):
        try:
            return snapshot.end_offset, list(decode_snapshot(disk.read_file(f"{directory}/{snapshot.name}")))
        except (RecordError, WireError):
            continue
    return None


def written(disk: SimDisk, end_offset: int, data: bytes) -> str:
    path = f"{DIRECTORY}/{SnapshotId(end_offset, 1).name}"
    disk.make_dirs(DIRECTORY)
    disk.replace_file_now(path, data)
    return path


def snapshot_with(name: str) -> bytes:
    return encode_snapshot(image_of([TopicRecord(name=name, topic_id=b"\x05" * 16)]), 1, 1_700_000_000_000)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "without its end", "longer", "garbage"])
def test_a_damaged_snapshot_is_passed_over_for_the_one_before(damage: str) -> None:
    disk = SimDisk()
    old, new = snapshot_with("old"), snapshot_with("new")
    written(disk, 5, old)
    footer_bytes = len(encode_snapshot(MetadataImage(), 1, 0)) // 3
    damaged = {
        "cut": new[:-1],
        "flipped": new[:100] + bytes([new[100] ^ 1]) + new[101:],
        "empty": b"",
        "without its end": new[: len(new) - footer_bytes],
        "longer": new + b"\0" * 7,
        "garbage": b"\xff" * 300,
    }[damage]
    written(disk, 9, damaged)
    found = newest_snapshot(disk, DIRECTORY)
    assert found is not None
    end_offset, records = found
    assert end_offset == 5
    assert image_of(records).topics.keys() == {"old"}


def test_every_truncation_and_every_flipped_bit_of_a_snapshot_is_noticed() -> None:
    disk = SimDisk()
    whole = snapshot_with("t")
    for length in range(len(whole)):
        written(disk, 5, whole[:length])
        assert newest_snapshot(disk, DIRECTORY) is None, length
    noticed = 0
    for position in range(len(whole)):
        written(disk, 5, whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        found = newest_snapshot(disk, DIRECTORY)
        # Base offsets and leader epochs stand outside the checksums; they change nothing that is read.
        assert found is None or image_of(found[1]).topics.keys() == {"t"}
        noticed += found is None
    assert noticed > len(whole) * 0.8


def test_without_a_directory_there_is_no_snapshot() -> None:
    assert newest_snapshot(SimDisk(), DIRECTORY) is None
