"""Outages of twenty seconds on a real Spark: nothing is lost or repeated, and `stop()` returns within seconds."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from servers.moto_server import KEYS, serve_moto
from spark_jobs.queries import WAIT_SECONDS, numbers, outage_of, wait_for_rows, wait_until
from spark_jobs.tcp_switch import TcpSwitch, switch_before

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3 * WAIT_SECONDS)]
NAMES = itertools.count()
AWAY_SECONDS = 20
STOP_SECONDS = 15
"""A call of the source returns after five, and Spark gives a task two more; the rest is for a busy machine."""


class FailsOnceError(Exception):
    """Raised by a sink, so that a batch is planned and not committed."""


class Job:
    """Owns a stream and the runs of a query over it, whose endpoint and store of claims are behind switches."""

    def __init__(self, spark: Any, stream: Any, folder: Any, endpoint: TcpSwitch, store: TcpSwitch) -> None:
        self.stream = stream
        self.endpoint = endpoint
        self.store = store
        self._spark = spark
        self._folder = folder
        self._is_sink_broken = False
        self._options = {
            "aws.endpoint": endpoint.url,
            "metadataLocation": f"s3://bucket/{stream.name}",
            "flink.state.endpoint": store.url,
            **KEYS,
        }

    def start(self) -> Any:
        """Returns when the query's planner runs. Spark gives its process ten seconds to start, also on a busy machine."""
        frame = self.stream.load(self._spark, self._folder, **self._options)
        writer = frame.writeStream.foreachBatch(self._write)
        while True:
            query = writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()
            while query.isActive and query.status["message"].startswith("Initializing"):
                time.sleep(0.1)
            if "failed to connect back" not in str(query.exception()):
                return query

    def break_in_a_batch(self, query: Any) -> None:
        """The query ends in the middle of a batch."""
        self._is_sink_broken = True
        self.stream.put(100)
        with pytest.raises(Exception, match="FailsOnceError"):
            query.awaitTermination(WAIT_SECONDS)
        self._is_sink_broken = False

    def numbers(self) -> list[int]:
        return numbers(self._spark, self._folder)

    def _write(self, batch: Any, number: int) -> None:
        if self._is_sink_broken and batch.count():
            raise FailsOnceError
        batch.write.mode("overwrite").parquet(str(self._folder / "out" / f"batch={number}"))


@pytest.fixture
def job(spark, kinesis, served, tmp_path) -> Iterator[Job]:
    with serve_moto() as url, switch_before(served.url) as endpoint, switch_before(url) as store:
        stream = kinesis(f"stopped-{next(NAMES)}")
        stream.put(300)
        yield Job(spark, stream, tmp_path, endpoint, store)


@contextmanager
def quickly(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    seconds = time.monotonic() - began
    print(f"{what}: {seconds:.1f} s")
    assert seconds < STOP_SECONDS, what


@pytest.mark.parametrize("away", ["endpoint", "store"])
def test_a_query_goes_on_after_an_outage_and_stops_within_seconds_in_one(job, away):
    service = getattr(job, away)
    query = job.start()
    wait_for_rows(query, 300)
    service.turn_off()
    job.stream.put(200)
    time.sleep(AWAY_SECONDS)
    assert query.isActive
    service.turn_on()
    wait_for_rows(query, 500)
    service.turn_off()
    job.stream.put(100)
    time.sleep(AWAY_SECONDS / 2)
    if away == "endpoint":  # without the store a batch may be running, whose task waits
        wait_until(query, lambda: outage_of(query) is not None)
    with quickly(f"stop() while the {away} is away"):
        query.stop()
    service.turn_on()
    again = job.start()
    wait_for_rows(again, 100)
    again.stop()
    assert job.numbers() == list(range(600))


@pytest.mark.parametrize("how", ["turn_off", "turn_mute"])
def test_a_query_that_starts_again_in_the_middle_of_a_batch_stops_within_seconds(job, how):
    """Its plan needs the store of claims: the batch from before runs first."""
    query = job.start()
    wait_for_rows(query, 300)
    job.break_in_a_batch(query)
    getattr(job.store, how)()
    waiting = job.start()
    time.sleep(AWAY_SECONDS)
    assert waiting.isActive
    with quickly("stop() while the batch from before a restart waits"):
        waiting.stop()
    job.store.turn_on()
    again = job.start()
    wait_for_rows(again, 100)
    again.stop()
    assert job.numbers() == list(range(400))
