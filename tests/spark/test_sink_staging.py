"""Staging: what a task wrote is what the commit reads, or it is noticed; inline up to a limit, then in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.client.errors import BadSetting
from semel.spark.places import absolute_uri, child_uri, open_place
from semel.spark.sink_errors import StagedDataLost
from semel.spark.staging import (
    FOLDER,
    INLINE_BYTES,
    Placement,
    Staged,
    StagedTopic,
    StagingArea,
    StagingWriter,
    file_name,
    inline_limit,
)

TOPICS = [StagedTopic("one", 3, 1000, 0), StagedTopic("two", 5, 2000, 4)]


def stage(area: str | None, batches: list[tuple[int, int, bytes]], inline_bytes: int) -> Staged:
    writer = StagingWriter(area, file_name("run", 7, 1), inline_bytes)
    for topic, partition, batch in batches:
        writer.add(TOPICS[topic], Placement.HASHED, partition, bytearray(batch), 2)
    return writer.finish()


@given(
    batches=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9), st.binary(min_size=1, max_size=300)), max_size=20),
    inline_bytes=st.integers(0, 2000),
)
@settings(max_examples=60, deadline=None)
def test_what_was_staged_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[int, int, bytes]], inline_bytes: int
) -> None:
    uri = tmp_path_factory.mktemp("staging").as_uri()
    staged = stage(uri, batches, inline_bytes)
    assert (staged.file is None) == (staged.size_bytes <= inline_bytes)
    assert staged.record_count == 2 * len(batches)
    area = StagingArea(uri)
    area.check([staged])
    frames = list(area.read(staged))
    assert [(TOPICS.index(f.topic), f.partition, bytes(f.batch)) for f in frames] == batches
    assert all(frame.placement is Placement.HASHED for frame in frames)


def test_every_damaged_byte_and_every_cut_is_noticed(tmp_path: Path) -> None:
    uri = tmp_path.as_uri()
    staged = stage(uri, [(0, 1, b"abcdef"), (1, 2, b"ghi")], 0)
    assert staged.file is not None
    path, area = tmp_path / staged.file, StagingArea(uri)
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x41]) + whole[position + 1 :])
        area.check([staged])
        with pytest.raises(StagedDataLost):
            list(area.read(staged))
        path.write_bytes(whole[:position])
        with pytest.raises(StagedDataLost, match="bytes"):
            area.check([staged])
        with pytest.raises(StagedDataLost):
            list(area.read(staged))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    staged = stage(tmp_path.as_uri(), [(0, 1, b"abcdef")], 0)
    (tmp_path / str(staged.file)).unlink()
    with pytest.raises(StagedDataLost, match="run-7-1"):
        StagingArea(tmp_path.as_uri()).check([staged])
    with pytest.raises(StagedDataLost, match="start the query again"):
        list(StagingArea(tmp_path.as_uri()).read(staged))


def test_inline_data_stays_below_ten_megabytes_for_any_number_of_tasks() -> None:
    assert inline_limit(0) == INLINE_BYTES
    assert sum(inline_limit(task) for task in range(1_000_000)) < 10_000_000


def test_without_a_place_too_much_data_is_refused_with_a_remedy() -> None:
    with pytest.raises(BadSetting, match="stagingLocation"):
        stage(None, [(0, 1, b"x" * 100)], 50)


def test_a_failed_task_leaves_nothing_behind(tmp_path: Path) -> None:
    writer = StagingWriter(tmp_path.as_uri(), "run-1-1", 0)
    writer.add(TOPICS[0], Placement.FREE, 0, bytearray(b"abc"), 1)
    writer.discard()
    assert list(tmp_path.iterdir()) == []


def test_cleaning_takes_batches_that_are_done_of_any_run(tmp_path: Path) -> None:
    for name in ("aa-bb-1-5", "aa-bb-2-9", "cc-1-0", "cc-3-0", "notes.txt", "x"):
        (tmp_path / name).write_bytes(b"x")
    StagingArea(tmp_path.as_uri()).clean(2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cc-3-0", "notes.txt", "x"]
    StagingArea((tmp_path / "not there").as_uri()).clean(2)
    StagingArea(None).clean(2)


def test_removing_what_is_gone_already_is_no_failure(tmp_path: Path) -> None:
    staged = stage(tmp_path.as_uri(), [(0, 1, b"abcdef")], 0)
    area = StagingArea(tmp_path.as_uri())
    area.remove([staged])
    area.remove([staged])
    assert list(tmp_path.iterdir()) == []
    area.remove_all()
    area.remove_all()
    assert not tmp_path.exists()


# -- places


@pytest.mark.parametrize(
    ("given_as", "expected"),
    [
        ("/data/check point", "file:///data/check%20point"),
        ("file:/data/x", "file:///data/x"),
        ("file:///data/x/", "file:///data/x"),
        ("file:///data/a%20b", "file:///data/a%2520b"),
        ("s3a://bucket/some/where", "s3://bucket/some/where"),
        ("s3://bucket/x?region=eu-west-1", "s3://bucket/x?region=eu-west-1"),
        ("gs://bucket/x/", "gs://bucket/x"),
    ],
)
def test_a_place_becomes_an_absolute_uri(given_as: str, expected: str) -> None:
    assert absolute_uri(given_as) == expected


def test_a_relative_place_is_one_of_the_drivers_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_uri("check/point") == (tmp_path / "check/point").as_uri()


def test_a_place_on_an_unknown_file_system_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"dbfs:///x is on no file system"):
        open_place(absolute_uri("dbfs:/x"))


def test_a_place_with_odd_letters_is_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "a b%20c#d?e"
    uri = absolute_uri(str(folder))
    place = open_place(child_uri(uri, FOLDER))
    assert place.path == f"{folder}/{FOLDER}"
    staged = stage(child_uri(uri, FOLDER), [(0, 0, b"abc")], 0)
    assert (folder / FOLDER / str(staged.file)).exists()


def test_staging_works_on_a_file_system_that_is_not_local() -> None:
    """pyarrow's own in-memory file system, which is opened by its URI as any other."""
    uri = "mock:///bucket/sink-staging"
    staged = stage(uri, [(0, 1, b"abcdef"), (1, 2, b"g" * 5000)], 0)
    area = StagingArea(uri)
    area.check([staged])
    assert [bytes(frame.batch) for frame in area.read(staged)] == [b"abcdef", b"g" * 5000]
    area.clean(7)
    with pytest.raises(StagedDataLost):
        area.check([staged])
