"""The job of the fetchers: started again when it dies, given up when that cannot help, ended when told. Spark is played."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from spool_model import Query

import recordpublisher as rp
from recordpublisher.plugins.sinks.spark.spool.fetchers import Fetchers, fetchers
from recordpublisher.plugins.spark.options import SparkOptions
from recordpublisher.plugins.stores.file.object_store import FolderObjects
from recordpublisher.publishers.errors import FencedError
from recordpublisher.publishers.retry import RetryPolicy

from spark_jobs.queries import Kinesis

NAMES = itertools.count()
SOON = RetryPolicy(max_retries=0, base_ms=10, max_ms=10, exponent=1.0)


class Context:
    """A SparkContext whose jobs do what the test says, one after the other."""

    master = "local[4]"
    defaultParallelism = 4  # noqa: N815
    _jsc = None

    def __init__(self, *jobs) -> None:
        self._jobs = list(jobs)
        self._jsc = self
        self.is_stopped = False
        self.cancelled = threading.Event()

    def sc(self):
        return self

    def isStopped(self):  # noqa: N802
        return self.is_stopped

    def getConf(self):  # noqa: N802
        return {}

    def setJobGroup(self, group, description, interruptOnCancel):  # noqa: N802, N803
        self.description = description

    def cancelJobGroup(self, group):  # noqa: N802
        self.cancelled.set()

    def parallelize(self, lanes, slices):
        self._lanes = list(lanes)
        return self

    def map(self, run):
        self._run = run
        return self

    def collect(self):
        self._jobs.pop(0)(self, self._run, self._lanes)


def lives(context, run, lanes):
    try:
        with ThreadPoolExecutor(len(lanes)) as pool:
            list(pool.map(run, lanes))
    except Exception as error:
        raise RuntimeError(f"Job aborted due to stage failure: {error}") from error  # as Spark has it


def dies(context, run, lanes):
    raise RuntimeError("executor lost")


def hears_nothing(context, run, lanes):
    assert context.cancelled.wait(60)
    raise RuntimeError("cancelled")


def loses_its_context(context, run, lanes):
    context.is_stopped = True
    raise RuntimeError("shut down")


@pytest.fixture
def stream(served):
    return Kinesis(served, f"fetched-{next(NAMES)}", 2)


def options_of(stream: Kinesis, tmp_path: Path, **more: object) -> dict[str, str]:
    return stream.options(tmp_path, mode="continuous", spoolRollInterval=50, **more)


def started(context: Context, stream: Kinesis, tmp_path: Path, tasks: int = 2, **more: object) -> Fetchers:
    made = Fetchers(context, SparkOptions.parse(options_of(stream, tmp_path, **more)), tasks, SOON)
    made.start()
    return made


def read(tmp_path: Path, count: int) -> Query:
    async def until_read() -> Query:
        query = Query(FolderObjects(tmp_path / "metadata"))
        await query.start()
        async with asyncio.timeout(60):
            while query.log[-1].records < count:
                await query.run_batch()
                await asyncio.sleep(0.02)
        return query

    return asyncio.run(until_read())


def wait_until_ended(fetching: Fetchers) -> None:
    deadline = time.monotonic() + 60
    while fetching.is_running:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_job_that_dies_is_started_again_as_a_new_generation(stream, tmp_path, caplog):
    stream.put(100)
    with started(Context(dies, dies, lives), stream, tmp_path):
        query = read(tmp_path, 100)
    assert query.log[-1].generation == 3
    assert "is started again in 0.0 s: RuntimeError: executor lost" in caplog.text


def test_the_later_of_two_starts_has_the_spool(stream, tmp_path):
    stream.put(100)
    old = started(Context(lives, lives), stream, tmp_path)
    with started(Context(lives), stream, tmp_path, tasks=1):
        wait_until_ended(old)
        assert read(tmp_path, 100).log[-1].records == 100
    with pytest.raises(FencedError, match="started later own this spool"):
        old.__exit__(None, None, None)


def test_tasks_that_do_not_end_are_cancelled(stream, tmp_path):
    context = Context(hears_nothing)
    fetching = started(context, stream, tmp_path)
    fetching.stop(seconds=0.05)
    assert context.cancelled.is_set()
    assert fetching.failure is None
    fetching.stop()


def test_fetchers_end_with_their_context(stream, tmp_path):
    fetching = started(Context(loses_its_context), stream, tmp_path)
    wait_until_ended(fetching)
    assert fetching.failure is None
    fetching.stop()


def test_lanes_are_known_and_half_of_the_slots_are_taken_where_nobody_says(stream, tmp_path):
    class Session:
        sparkContext = Context(lives)  # noqa: N815

    with fetchers(Session(), options_of(stream, tmp_path)) as fetching:
        deadline = time.monotonic() + 60
        while fetching.lanes != {0, 1}:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert fetching.lanes == set()
    assert "2 fetchers of fetched-" in Session.sparkContext.description


def test_c2_without_a_spark_context_the_error_says_what_to_do(stream, tmp_path):
    class Connected:
        @property
        def sparkContext(self):  # noqa: N802
            raise RuntimeError("[JVM_ATTRIBUTE_NOT_SUPPORTED]")

    with pytest.raises(rp.ConfigurationError, match=r"Spark Connect\) has none; valid: DRIVER or BATCH"):
        fetchers(Connected(), options_of(stream, tmp_path))


def test_c2_what_can_be_known_wrong_with_the_place_is_an_error_of_the_call(stream, tmp_path):
    (tmp_path / "file").write_text("in the way")
    location = str(tmp_path / "file" / "spool")
    with pytest.raises(
        rp.ConfigurationError, match=r"'metadataLocation' has the value .*the spool cannot be kept there"
    ):
        started(Context(), stream, tmp_path, metadataLocation=location)
    with started(Context(lives), stream, tmp_path):
        pass
    other = Kinesis(stream.served, f"{stream.name}-other", 1)
    with pytest.raises(rp.ConfigurationError, match=f"'stream' has the value '{other.name}'; .* read {stream.name} so"):
        started(Context(lives), other, tmp_path)
