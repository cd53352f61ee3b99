"""What the load generator is asked for, what it prints, and what the bench takes from it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))

import load_generator
from load_generator import Fetch, NotLoaded, Produce, arguments, loaded

PRINTED = {
    "seconds": 2.0,
    "requests": 1010,
    "records": 16160,
    "bytes": 16_160_000,
    "requests_per_s": 500.0,
    "records_per_s": 8000.0,
    "bytes_per_s": 8_000_000.0,
    "p50_us": 101.5,
    "p99_us": 900.0,
    "p999_us": 1500.0,
    "max_us": 1600.0,
    "errors": 0,
    "first_error": 0,
    "unsent": 3,
    "client_cpu_s": 0.01,
}


def test_rates_are_those_of_the_time_and_costs_are_shared_by_all_that_was_answered() -> None:
    found = loaded(json.dumps(PRINTED), cpu_s=0.202)
    assert (found.requests, found.records, found.megabytes) == (500, 8000, 8)
    assert (found.p50_us, found.p99_us, found.p999_us, found.unsent) == (101.5, 900, 1500, 3)
    assert found.cpu_us_per_request == pytest.approx(200)
    assert found.cpu_s_per_gb == pytest.approx(12.5)
    assert (found.sum_requests, found.sum_records, found.sum_megabytes) == (1010, 16160, 16.16)


def test_a_load_that_the_broker_refused_is_no_figure_and_names_the_error() -> None:
    with pytest.raises(NotLoaded, match="refused 2 times, first: OUT_OF_ORDER_SEQUENCE_NUMBER"):
        loaded(json.dumps({**PRINTED, "errors": 2, "first_error": 45}), 0.1)


def test_a_load_without_an_answer_is_no_figure() -> None:
    with pytest.raises(NotLoaded, match="answered nothing"):
        loaded(json.dumps({**PRINTED, "requests": 0}), 0.1)


@pytest.mark.parametrize("output", ["", json.dumps(PRINTED)[:-9]])
def test_a_line_that_is_cut_short_is_no_figure(output: str) -> None:
    with pytest.raises(NotLoaded, match="no JSON"):
        loaded(output, 0.1)


def test_each_field_is_an_option_and_what_is_off_is_left_out() -> None:
    assert " ".join(arguments(Produce(connections=8, in_flight=5, plain=True, rate=1000))) == (
        "produce --connections 8 --in-flight 5 --records 1 --value-bytes 1000 --partitions 4 "
        "--partitions-per-request 1 --plain --rate 1000"
    )
    assert " ".join(arguments(Fetch(sessions=True, max_bytes=4096))) == (
        "fetch --connections 4 --in-flight 1 --max-bytes 4096 --partitions 4 --partitions-per-request 1 --sessions"
    )


def test_without_gcc_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(load_generator, "_BUILT", tmp_path / "built")
    with pytest.raises(NotLoaded, match=r"gcc is not on the PATH.*apt-get install gcc"):
        load_generator.program.__wrapped__()
