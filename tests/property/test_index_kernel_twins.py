"""The search in an index: compiled, plain, and the library's own, on entries in order and on damaged ones."""

from __future__ import annotations

from bisect import bisect_right
from random import Random
from struct import pack

import pytest

from plain_kernels import plain
from semel.log import index_kernel

PLAIN = plain("index_kernel", "log")
KERNELS = [PLAIN, index_kernel] if index_kernel.compiled else [PLAIN]


@pytest.mark.parametrize("seed", range(100))
def test_the_last_entry_up_to_a_number_is_found(seed: int) -> None:
    random = Random(seed)
    numbers = sorted(random.choices(range(-5, 2**31) if seed % 2 else range(60), k=random.randint(0, 70)))
    entries = b"".join(pack(">ii", number, random.randint(-(2**31), 2**31 - 1)) for number in numbers)
    wanted = [-(2**40), -1, 0, 2**31, 2**62, *numbers, *(number + 1 for number in numbers)]
    for kernel in KERNELS:
        for half_an_entry in (b"", b"1234567"):
            for data in (entries + half_an_entry, bytearray(entries + half_an_entry)):
                found = [kernel.last_up_to(data, most) for most in wanted]
                assert found == [bisect_right(numbers, most) - 1 for most in wanted]


def test_of_entries_out_of_order_all_find_the_same() -> None:
    for seed in range(200):
        random = Random(seed)
        data = random.randbytes(8 * random.randint(0, 50))
        for most in (-1, 0, 2**31 - 1, random.randint(-(2**31), 2**31)):
            found = {kernel.last_up_to(data, most) for kernel in KERNELS}
            assert len(found) == 1
            assert -1 <= found.pop() < len(data) // 8
