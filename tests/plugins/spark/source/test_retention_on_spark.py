"""A query on a real Spark that starts again a day later: a gap is named, a quiet stream has none (S5)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from recordpublisher.local import serve_in_thread

from spark_jobs.queries import WAIT_SECONDS, Kinesis, numbers, to_parquet

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * WAIT_SECONDS)]
NOW = {"availableNow": True}
HOUR_MS = 3_600_000
BEHIND_MS = 200 * HOUR_MS


class EarlyClock:
    """The endpoint lives in the past, so that a test can step it ahead up to the present of Spark's processes."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 - BEHIND_MS


@pytest.fixture
def stream() -> Iterator[Kinesis]:
    with serve_in_thread(clock=EarlyClock()) as served:
        yield Kinesis(served, "retained", 2)


def step(stream: Kinesis, hours: float) -> None:
    stream.served.call(stream.served.endpoint.account.clock.step, round(hours * HOUR_MS))


def failure_of(query: Any) -> str:
    deadline = time.monotonic() + WAIT_SECONDS
    while query.exception() is None:
        assert time.monotonic() < deadline, "the query goes on"
        time.sleep(0.2)
    return str(query.exception())


@pytest.mark.parametrize("is_written", [False, True])
def test_an_available_now_run_a_day_later_fails_only_if_there_are_later_records(spark, stream, tmp_path, is_written):
    stream.put(100)
    to_parquet(stream.load(spark, tmp_path), tmp_path, **NOW).awaitTermination()
    step(stream, 25)
    if is_written:
        stream.put(100)
    again = to_parquet(stream.load(spark, tmp_path), tmp_path, **NOW)

    if is_written:
        assert "past retention and lost" in failure_of(again)
    else:
        again.awaitTermination()
    assert numbers(spark, tmp_path) == list(range(100))
