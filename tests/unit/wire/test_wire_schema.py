import subprocess
import sys

import pytest

from semel.wire.schema import I32, Array, Message, Str, Struct, field, layout
from semel.wire.spec.fetch import FetchResponsePartition
from semel.wire.spec.fetch_snapshot import FetchSnapshotRequestPartition
from semel.wire.spec.list_offsets import ListOffsetsPartitionResponse
from semel.wire.spec.produce import PartitionProduceData, ProduceRequest, TopicProduceData


class Pair(Struct):
    number: I32 = 7
    name: Str | None = field(default=None, since=2, nullable_since=3)


class Pairs(Message, versions="1-4", flexible=4):
    pairs: Array[Pair] = ()
    late: I32 = field(default=-1, since=4, tag=0)


def test_fields_that_are_not_given_hold_their_defaults() -> None:
    pairs = Pairs()
    assert (pairs.pairs, pairs.late) == ((), -1)
    assert ListOffsetsPartitionResponse().offset == -1


def test_fields_are_given_by_name_only() -> None:
    with pytest.raises(TypeError):
        Pair(1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Pair(nmber=1)  # type: ignore[call-arg]


def test_a_field_that_does_not_exist_cannot_be_set() -> None:
    with pytest.raises(AttributeError):
        Pair().nmber = 1  # type: ignore[attr-defined]


def test_messages_are_equal_when_their_fields_are() -> None:
    assert Pairs(pairs=[Pair(number=1)]) == Pairs(pairs=(Pair(number=1),))
    assert Pairs(pairs=[Pair(number=1)]) != Pairs(pairs=[Pair(number=2)])
    assert Pairs(pairs=[Pair(number=1)]) != Pairs(pairs=[])
    assert Pair() != Pairs()


def test_a_message_shows_its_fields() -> None:
    assert repr(Pairs(pairs=[Pair(number=1)])) == "Pairs(pairs=[Pair(number=1, name=None)], late=-1)"


def test_a_nested_struct_is_made_anew_for_each_owner() -> None:
    first, second = FetchSnapshotRequestPartition(), FetchSnapshotRequestPartition()
    assert first.snapshot_id == second.snapshot_id
    assert first.snapshot_id is not second.snapshot_id


def test_a_tagged_struct_that_is_absent_is_none() -> None:
    assert FetchResponsePartition().diverging_epoch is None


def test_a_message_knows_its_versions() -> None:
    assert (ProduceRequest.api_key, ProduceRequest.min_version, ProduceRequest.max_version) == (0, 3, 13)
    assert ProduceRequest.flexible_from == 9
    assert (Pairs.min_version, Pairs.max_version, Pairs.flexible_from) == (1, 4, 4)


@pytest.mark.parametrize(
    ("version", "plain", "nullable"),
    [(1, ["number"], []), (2, ["number", "name"], []), (3, ["number", "name"], ["name"])],
)
def test_a_layout_holds_the_fields_of_its_version(version: int, plain: list[str], nullable: list[str]) -> None:
    shape = layout(Pair, version, False)
    assert [entry.name for entry in shape.plain] == plain
    assert [entry.name for entry in shape.plain if entry.is_nullable] == nullable


def test_a_layout_knows_the_fewest_bytes_a_struct_can_take() -> None:
    assert layout(PartitionProduceData, 3, False).min_size_bytes == 4 + 4
    assert layout(PartitionProduceData, 9, True).min_size_bytes == 4 + 1 + 1
    assert layout(TopicProduceData, 3, False).min_size_bytes == 2 + 4
    assert layout(TopicProduceData, 13, True).min_size_bytes == 16 + 1 + 1


def test_tagged_fields_stand_apart_from_the_others() -> None:
    shape = layout(Pairs, 4, True)
    assert [entry.name for entry in shape.plain] == ["pairs"]
    assert [(entry.name, entry.tag) for entry in shape.tagged] == [("late", 0)]


def test_an_annotation_that_is_no_type_of_the_wire_is_refused() -> None:
    class Wrong(Struct):
        number: int = 0

    with pytest.raises(TypeError):
        layout(Wrong, 0, False)


def test_descriptions_are_not_loaded_before_they_are_used() -> None:
    program = (
        "import sys, semel.wire.frame, semel.wire.codec\n"
        "sys.exit(any(name.startswith('semel.wire.spec') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
