"""Bad bytes are a RecordError and bad columns a ValueError; and the compiled kernels behind Arrow columns are their
plain source, to the word, also on input made to break them.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import column_kernels
from column_kernels import PLAIN_COLUMN_KERNEL, PLAIN_KERNEL
from semel.records import column_kernel, kernel
from semel.records.batch import HEADER_BYTES, read_header
from semel.records.build import build_batch
from semel.records.columns import read_columns
from semel.records.compact import filter_batch
from semel.records.compression import Codec
from semel.records.errors import RecordError
from semel.records.read import read_messages

INT64 = st.integers(-(2**63), 2**63 - 1)
MAX_BYTES = 2**20

needs_compiled = pytest.mark.skipif(not column_kernels.both_are_compiled, reason="the kernels are not compiled here")


def hostile_seeds() -> list[bytes]:
    batches = [
        bytes(
            build_batch(
                [b"value", None, b"", b"long " * 40, b"x"],
                keys=[b"key", b"", None, b"key", None],
                headers=[[("a", b"1"), ("b", None)], [], [("", b""), ("ü", b"")], [], []],
                timestamps_ms=[1000, 999, 10**12, 0, -1],
                base_timestamp_ms=1000,
                codec=codec,
            )
        )
        for codec in Codec
    ]
    batches.append(bytes(build_batch([b"v" * 100] * 100, base_timestamp_ms=5)))
    thinned = filter_batch(batches[0], b"\x00\x01\x00\x01\x00", delete_horizon_ms=77)
    assert thinned is not None
    return [*batches, bytes(thinned)]


SEEDS = hostile_seeds()


def mutated(original: bytes, random: Random) -> bytearray:
    batch = bytearray(original)
    for _ in range(random.randint(1, 4)):
        position = random.randrange(len(batch))
        choice = random.random()
        if choice < 0.6:
            batch[position] = random.choice((0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFE, 0xFF, random.randrange(256)))
        elif choice < 0.75:
            del batch[position : position + random.randint(1, 5)]
        else:
            batch[position:position] = random.choice((b"\xff" * random.randint(1, 12), random.randbytes(3)))
        batch = batch or bytearray(b"\x00")
    return batch


@pytest.mark.parametrize("seed", range(len(SEEDS)))
def test_thousands_of_mutations_raise_nothing_but_record_errors(seed: int) -> None:
    random = Random(seed)
    refused = 0
    for _ in range(2000):
        batch = mutated(SEEDS[seed], random)
        if len(batch) >= HEADER_BYTES and random.random() < 0.9:
            struct.pack_into(">i", batch, 8, len(batch) - 12)
        try:
            header = read_header(batch)
            columns = read_columns(
                [(batch, header)],
                first_offset=random.choice([0, 2]),
                with_headers=True,
                timestamp_unit=random.choice(["ms", "us"]),
                max_decompressed_bytes=MAX_BYTES,
            )
            columns.batch.validate(full=True)
            read_messages(batch, header, "t", 0, 2, tuple, max_decompressed_bytes=MAX_BYTES)
        except RecordError:
            refused += 1
    assert refused > 1000


def outcome(call: Callable[[], object]) -> object:
    """What a call gives, or how it fails, to the word."""
    try:
        return call()
    except (ValueError, TypeError, IndexError, OverflowError, MemoryError) as error:
        return type(error).__name__, str(error)


def filled(column: Any) -> Any:
    """What a kernel has put into the buffers of a column, without the rest of them."""
    count, nulls, validity, offsets, data, size = column
    bits = None if validity is None else bytes(validity[: (count + 7) // 8])
    return count, nulls, bits, bytes(offsets[: 4 * count + 4]), bytes(data[:size])


def read_with(module: ModuleType, batches: list[tuple[Any, ...]], factor: int, expected: tuple[int, int]) -> Any:
    reader = module.ColumnReader(True, factor, bytearray, *expected)
    added = [reader.add(*arguments) for arguments in batches]
    count = len(reader)
    offsets, timestamps, types, key, value, header_offsets, header_key, header_value = reader.finish()
    return (
        added,
        bytes(offsets[: 8 * count]),
        bytes(timestamps[: 8 * count]),
        bytes(types[: 4 * count]),
        filled(key),
        filled(value),
        bytes(header_offsets[: 4 * count + 4]),
        filled(header_key),
        filled(header_value),
    )


def assert_readers_agree(batches: list[tuple[Any, ...]], factor: int, expected: tuple[int, int] = (0, 0)) -> None:
    ours = outcome(lambda: read_with(kernel, batches, factor, expected))
    assert ours == outcome(lambda: read_with(PLAIN_KERNEL, batches, factor, expected))
    for data, start, count, last, base, stamp, append, first, _, _ in batches:
        arguments = (data, start, count, last, base, stamp, append, "topic", 3, first, tuple)
        ours = outcome(lambda a=arguments: kernel.read_messages(*a))  # type: ignore[misc]
        assert ours == outcome(lambda a=arguments: PLAIN_KERNEL.read_messages(*a))  # type: ignore[misc]


@needs_compiled
@given(
    data=st.binary(max_size=200),
    start=st.integers(-1, 20),
    count=st.integers(-1, 20),
    last=st.integers(-1, 40),
    base=INT64,
    stamp=INT64,
    append=st.none() | INT64,
    first=INT64,
    factor=st.sampled_from([0, 1, 1000]),
)
@settings(max_examples=300, deadline=None)
def test_both_readers_refuse_random_bytes_with_the_same_words(
    data: bytes, start: int, count: int, last: int, base: int, stamp: int, append: int | None, first: int, factor: int
) -> None:
    assert_readers_agree([(data, start, count, last, base, stamp, append, first, 2**63 - 1, 1000)], factor)


@needs_compiled
@pytest.mark.parametrize("seed", [0, len(SEEDS) - 2, len(SEEDS) - 1])
def test_both_readers_agree_on_mutated_batches(seed: int) -> None:
    random = Random(seed)
    original = SEEDS[seed]
    header = read_header(original)
    counts = (header.record_count, header.last_offset_delta)
    good = (original, HEADER_BYTES, *counts, 0, header.base_timestamp, None, 0, 200, 500)
    for _ in range(300 if len(original) < 2000 else 40):
        records = bytes(mutated(original[HEADER_BYTES:], random))
        bad = (
            records,
            0,
            *counts,
            50,
            header.base_timestamp,
            random.choice([None, 5]),
            random.choice([0, 52]),
            random.choice([53, 1000]),
            random.choice([2, 6, 500]),
        )
        assert_readers_agree([good, bad, good], random.choice([1, 1000]), random.choice([(0, 0), (7, 300)]))


def column_of_anything(module: ModuleType, random: Random, count: int) -> Any:
    """A column that is often fit to be read and often not. None if not even its outside is."""
    data = random.randbytes(random.choice([0, 5, 40, 300]))
    steps = sorted(random.randint(0, len(data)) for _ in range(count + 5))
    if random.random() < 0.2:
        steps[random.randrange(len(steps))] = random.choice([-1, len(data) + 1, 2**31 - 1, -(2**31), 0])
    validity = random.choice([None, random.randbytes((count + 12) // 8)])
    first = random.choice([0, 1, 3, 4])
    if random.random() < 0.1:
        first, validity = random.choice([(-1, None), (5, None), (0, b""), (2**62, None)])
    offsets = memoryview(array(random.choice("iq"), steps))
    made = outcome(lambda: module.BinaryColumn(offsets, data, validity, first, count))
    return None if isinstance(made, tuple) else made


def columns_of_anything(module: ModuleType, random: Random, first_row: int, count: int) -> Any:
    values = column_of_anything(module, random, count)
    keys = random.choice([None, column_of_anything(module, random, count)])
    numbers = headers = None
    if random.random() < 0.5:
        stamps = array("q", [random.choice([random.randint(-(2**63), 2**63 - 1), 5]) for _ in range(count + 1)])
        numbers = module.NumberColumn(memoryview(stamps), random.choice([None, b"\x55\x55"]), 0, count)
    parts = [column_of_anything(module, random, 20) for _ in range(2)]
    if None not in parts and random.random() < 0.7:
        ends = memoryview(array("i", sorted(random.randint(0, random.choice([6, 20, 21])) for _ in range(count + 1))))
        headers = module.HeaderColumn(ends, *parts, random.choice([None, b"\xf5\xff"]), 0, count)
    scale = random.choice([(1, 1), (1, 1000), (1000, 1)])
    return values and module.RecordColumns(first_row, values, keys, headers, numbers, *scale)


def encode_with(module: ModuleType, random: Random, batch_bytes: int) -> list[Any]:
    """What comes of each step. Errors do not end it: also after one, nothing may be touched that is not there."""
    count = random.randint(0, 12)
    made = [columns_of_anything(module, random, first_row, count) for first_row in (0, count)]
    rows = None
    if random.random() < 0.5:
        rows = memoryview(array("i", [random.randint(-1, 2 * count + 1) for _ in range(random.randint(0, 30))]))
    encoder = module.RecordEncoder(batch_bytes, random.choice([0, 61]), random.choice([-1, 0, 100, 10**6]), 77)
    done: list[Any] = []
    position = 0
    for _ in range(12):
        columns = random.choice(made)
        if columns is None:
            continue
        done.append(outcome(lambda c=columns, p=position: module.largest_record(c, rows, p)))  # type: ignore[misc]
        reached = outcome(lambda c=columns, p=position: encoder.add(c, rows, p))  # type: ignore[misc]
        done.append(reached)
        if not isinstance(reached, int):
            position += 1
        elif reached > position:
            position = reached
        else:
            taken = outcome(encoder.take)
            assert isinstance(taken, tuple)
            if isinstance(taken[0], bytearray):
                taken = (len(taken[0]), bytes(taken[0][61:]), *taken[1:])
            done.append(taken)
    return done


@needs_compiled
@pytest.mark.parametrize("batch_bytes", [0, 200, 2000])
def test_both_encoders_agree_on_columns_that_may_be_anything(batch_bytes: int) -> None:
    refused = encoded = 0
    for seed in range(1500):
        ours = encode_with(column_kernel, Random(seed), batch_bytes)
        assert ours == encode_with(PLAIN_COLUMN_KERNEL, Random(seed), batch_bytes)
        steps = [step for step in ours if isinstance(step, tuple)]
        refused += sum(step[0] == "ValueError" for step in steps)
        encoded += sum(len(step) == 5 for step in steps)
        assert {step[0] for step in steps if isinstance(step[0], str)} <= {"ValueError"}
    assert refused > 1000
    assert encoded > 500


def partition_with(module: ModuleType, random: Random) -> Any:
    count = random.randint(0, 20)
    keys = random.choice([None, column_of_anything(module, random, count)])
    numbers = None
    if random.random() < 0.5:
        picked = array("q", [random.choice([random.randint(-1, 9), 3]) for _ in range(count)])
        numbers = module.NumberColumn(memoryview(picked), random.choice([None, b"\x55\x55\x01"]), 0, count)
    assigned = memoryview(array("i", [0] * (count + random.choice([-1, 0, 0, 3]) if count else 0)))
    wrong = module.assign_partitions(count, numbers, keys, 9, 4, assigned, random.choice([0, 0, 2]))
    rows = memoryview(array("i", [0] * len(assigned)))
    ends = memoryview(array("i", [0] * random.choice([9, 9, 3])))
    module.sort_by_partition(assigned, ends, rows)
    return wrong, assigned.tolist(), rows.tolist(), ends.tolist()


@needs_compiled
def test_both_kernels_agree_on_partitions() -> None:
    for seed in range(3000):
        ours = outcome(lambda s=seed: partition_with(column_kernel, Random(s)))  # type: ignore[misc]
        assert ours == outcome(lambda s=seed: partition_with(PLAIN_COLUMN_KERNEL, Random(s)))  # type: ignore[misc]


@needs_compiled
@given(key=st.binary(max_size=100))
@settings(max_examples=300, deadline=None)
def test_both_kernels_hash_the_same(key: bytes) -> None:
    assert column_kernel.murmur2(key) == PLAIN_COLUMN_KERNEL.murmur2(key)
