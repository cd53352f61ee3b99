from __future__ import annotations

import logging
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

import semel.records
from semel.records.batch import check_crc, read_header, walk
from semel.records.build import build_batch
from semel.records.compression import Codec
from semel.records.read import Record, read_records, record_values

NOW_MS = 1_700_000_000_000


def test_a_batch_of_one_value_has_the_known_bytes() -> None:
    batch = build_batch([b"hello"], keys=[b"k"], headers=[[("h", b"v")]], base_timestamp_ms=NOW_MS)
    records = bytes.fromhex("20 00 00 00 02 6b 0a 68656c6c6f 02 02 68 02 76")
    assert batch[61:] == records
    assert read_header(batch)[:4] == (0, len(records) + 49, -1, 2)
    assert check_crc(batch, 0, read_header(batch))


def test_without_timestamps_every_record_has_the_base_timestamp() -> None:
    batch = build_batch([b"a", None, b""], base_timestamp_ms=NOW_MS, base_offset=7)
    assert read_records(batch) == [
        Record(7, NOW_MS, None, b"a", ()),
        Record(8, NOW_MS, None, None, ()),
        Record(9, NOW_MS, None, b"", ()),
    ]
    assert read_header(batch).max_timestamp == NOW_MS


def test_the_greatest_timestamp_goes_into_the_header() -> None:
    batch = build_batch([b"a", b"b"], timestamps_ms=[5, 3], base_timestamp_ms=9)
    assert read_header(batch).base_timestamp == 9
    assert read_header(batch).max_timestamp == 5
    assert [r.timestamp_ms for r in read_records(batch)] == [5, 3]


def test_with_log_append_time_the_base_timestamp_is_the_time_of_the_append() -> None:
    batch = build_batch([b"a", b"b"], timestamps_ms=[5, 3], base_timestamp_ms=9, log_append_time=True)
    assert read_header(batch).max_timestamp == 9
    assert [r.timestamp_ms for r in read_records(batch)] == [9, 9]


@pytest.mark.parametrize("size", [0, 1, 62, 63, 64, 65, 8190, 8191, 8192, 2**20 - 1, 2**20, 2**21])
def test_lengths_at_the_edges_of_varints_survive(size: int) -> None:
    value = b"x" * size
    batch = build_batch([value, value], keys=[value, None], base_timestamp_ms=NOW_MS)
    assert walk(batch, read_header(batch)) == (NOW_MS, NOW_MS, 1)
    assert [(r.key, r.value) for r in read_records(batch)] == [(value, value), (None, value)]


def test_offset_deltas_of_every_size_survive() -> None:
    values: list[bytes | None] = [b""] * 20_000
    batch = build_batch(values, base_timestamp_ms=NOW_MS)
    assert walk(batch, read_header(batch)).null_keys == 20_000
    assert record_values(batch) == values
    assert read_records(batch)[-1].offset == 19_999


@pytest.mark.parametrize("codec", list(Codec))
def test_each_codec_gives_the_records_back(codec: Codec) -> None:
    values: list[bytes | None] = [b"value %d " % i * 50 for i in range(500)]
    batch = build_batch(values, base_timestamp_ms=NOW_MS, codec=codec)
    assert read_header(batch).codec == codec
    assert record_values(batch) == values
    if codec:
        assert len(batch) < sum(len(value or b"") for value in values) // 4


def test_a_batch_without_records_is_not_built() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([], base_timestamp_ms=NOW_MS)


@pytest.mark.parametrize("column", ["keys", "headers", "timestamps_ms"])
@pytest.mark.parametrize("length", [1, 3])
def test_columns_of_another_length_are_refused(column: str, length: int) -> None:
    entry = {"keys": b"k", "headers": (), "timestamps_ms": 1}[column]
    with pytest.raises(ValueError, match=column):
        build_batch([b"a", b"b"], base_timestamp_ms=NOW_MS, **{column: [entry] * length})  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["text", 5, bytearray(b"x"), memoryview(b"x")])
def test_keys_and_values_are_plain_bytes(wrong: object) -> None:
    with pytest.raises(TypeError):
        build_batch([wrong], base_timestamp_ms=NOW_MS)  # type: ignore[list-item]
    with pytest.raises(TypeError):
        build_batch([b"a"], keys=[wrong], base_timestamp_ms=NOW_MS)  # type: ignore[list-item]
    with pytest.raises(TypeError):
        build_batch([b"a"], headers=[[("h", wrong)]], base_timestamp_ms=NOW_MS)  # type: ignore[list-item]


def test_a_timestamp_beyond_64_bits_is_refused() -> None:
    with pytest.raises(OverflowError):
        build_batch([b"a"], timestamps_ms=[2**63], base_timestamp_ms=NOW_MS)


def test_the_kernel_checks_its_lists_itself(any_kernel: ModuleType) -> None:
    for short in ([[b"k"], None, None], [None, [b"\x00"], None], [None, None, [1]]):
        with pytest.raises(IndexError):
            any_kernel.encode_records([b"a", b"b"], *short, 0, 0)
    with pytest.raises(ValueError, match="changed while"):
        any_kernel.encode_records([b"a"], None, [None], None, 0, 0)


def test_a_header_key_that_is_not_utf8_is_mended_not_refused() -> None:
    batch = build_batch([b"v"], headers=[[("abc", b"x")]], base_timestamp_ms=NOW_MS)
    batch[batch.index(b"abc")] = 0xFF
    assert read_records(batch)[0].headers == (("�bc", b"x"),)


def test_an_uncompiled_kernel_is_told_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(semel.records, "_warned", False)
    monkeypatch.setattr(semel.records.kernel, "compiled", False)
    with caplog.at_level(logging.WARNING, logger="semel"):
        assert semel.records.warn_if_uncompiled()
        assert semel.records.warn_if_uncompiled()
    assert [r.name for r in caplog.records] == ["semel"]
    monkeypatch.setattr(semel.records.kernel, "compiled", True)
    assert not semel.records.warn_if_uncompiled()


def test_the_kernel_runs_without_cython_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cython", None)
    loader = SourceFileLoader("kernel_without_cython", str(Path(semel.records.__file__).with_name("kernel.py")))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    records, _ = module.encode_records([b"a", None], [b"k", None], None, [5, 6], 5, 0)
    assert module.read_values(records, 0, 2, 1) == [b"a", None]
    assert module.copy_records(records, 0, 2, 1, b"\x00\x01", 5, 9, 0)[2:] == (1, 6)
