"""A drain that waits says for what: the sink, or a publisher that does not end."""

import asyncio
import os
import re
import subprocess
import sys
from contextlib import suppress

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.sink import Unfinished
from recordpublisher.local import in_memory
from recordpublisher.plugins.runtime.stop_signals import tell_what_drains
from recordpublisher.publishers.base import RunResult
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.memory_store import MemoryStore
from fakes.scripted_source import RecordingSink, ScriptedPublisher, ScriptedSource, make_fetcher


def told(caplog, seconds, *publishers):
    async def drain():
        left = Unfinished(7, "records not handled: 7")
        telling = asyncio.create_task(tell_what_drains("map", lambda: left, lambda: publishers))
        await asyncio.sleep(seconds)
        telling.cancel()

    run_virtual(drain())
    return caplog.messages


def test_a_drain_that_waits_says_for_what_and_how_to_end_it(caplog):
    first, second = told(caplog, 25)

    assert first.startswith(
        "the job has been draining for 10 s: it waits for the sink 'map' (records not handled: 7). "
    )
    assert "a second signal ends" in first
    assert "draining for 20 s" in second


def test_a_drain_of_a_job_that_stores_no_positions_promises_no_repetition(caplog):
    async def drain():
        left = Unfinished(7, "records not handled: 7")
        telling = asyncio.create_task(tell_what_drains("map", lambda: left, lambda: (), stores_positions=False))
        await asyncio.sleep(15)
        telling.cancel()

    run_virtual(drain())
    assert caplog.messages[0].endswith("no start continues at these records, because no positions are stored")


def test_publishers_that_do_not_end_are_named_and_not_the_sink(caplog):
    (line,) = told(caplog, 15, "the publisher of A for s/a, which waits at a.py:5 (run)")

    assert "it waits for the publisher of A for s/a, which waits at a.py:5 (run). `run` of a publisher must end" in line
    assert "sink" not in line


def test_the_sink_is_not_named_for_the_time_in_which_a_publisher_did_not_end(caplog):
    hung = ["the publisher of A for s/a, which waits at a.py:5 (run)"]

    async def drain():
        asyncio.get_running_loop().call_later(
            29.999, hung.clear
        )  # After a drain timeout of 30 s the job has left it behind.
        telling = asyncio.create_task(tell_what_drains("map", lambda: None, lambda: hung))
        await asyncio.sleep(39.5)
        named = len(caplog.messages)
        await asyncio.sleep(1)
        telling.cancel()
        return named

    assert run_virtual(drain()) == 2
    assert all("waits for the publisher of A" in line for line in caplog.messages[:2])
    assert "draining for 40 s: it waits for the sink 'map'" in caplog.messages[2]


class Stubborn(ScriptedPublisher):
    """Ends only after a while, whatever is cancelled."""

    async def run(self, consumer):
        for _ in range(2):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
        return RunResult.CANCELLED


class StubbornSource(ScriptedSource):
    async def create(self, shard, starting_position, metrics):
        return Stubborn(self, self.shards[shard.key], starting_position)


def test_a_publisher_that_swallows_its_cancellation_is_known_with_its_line():
    async def main():
        source = StubbornSource()
        source.add("a", 1)
        fetcher = make_fetcher(source, RecordingSink())
        await fetcher.open()
        running = asyncio.create_task(fetcher.run())
        await asyncio.sleep(5)
        before = fetcher.hung_publishers()
        fetcher.stop()
        await asyncio.sleep(5)
        hung = fetcher.hung_publishers()
        await running
        return before, hung, fetcher.hung_publishers()

    before, (hung,), after = run_virtual(main())
    assert before == after == []
    assert re.fullmatch(
        r"the publisher of StubbornSource for s/a, which waits at \S+test_draining\.py:\d+ \(run\)", hung
    )


class StuckSink(rp.MemorySink):
    """Its writes hang for a while."""

    async def write(self, batch):
        await asyncio.sleep(18)


def test_the_stop_of_a_program_of_ones_own_says_what_it_waits_for(caplog):
    async def main():
        with in_memory({"orders": 1}, clock=VirtualClock()) as account:
            account.find("orders").put(b"1", "key")
            async with rp.DataFetcher(
                "orders", region="eu-west-1", sink=StuckSink(), start="TRIM_HORIZON", clock=VirtualClock()
            ) as fetcher:
                running = asyncio.create_task(fetcher.run())
                await asyncio.sleep(5)
                fetcher.stop()
                await running

    run_virtual(main())
    (line,) = [text for text in caplog.messages if "has been draining" in text]
    assert "it waits for the sink 'StuckSink' (a call that runs" in line


class AwayStore(MemoryStore):
    """Stores nothing after the fifth second."""

    error = rp.StoreUnavailableError("db7 refused the connection")

    async def compare_and_set(self, *given):
        if asyncio.get_running_loop().time() > 5:
            await asyncio.sleep(2)
            raise self.error
        return await super().compare_and_set(*given)


async def ignore(record):
    pass


def test_a_stop_while_the_store_of_positions_is_away_does_not_blame_the_sink(caplog):
    async def main():
        with in_memory({"orders": 1}, clock=VirtualClock()) as account:
            async with rp.DataFetcher(
                "orders",
                region="eu-west-1",
                sink=rp.MapSink(ignore),
                start="TRIM_HORIZON",
                state_store=AwayStore(),
                clock=VirtualClock(),
            ) as fetcher:
                running = asyncio.create_task(fetcher.run())
                await asyncio.sleep(6)
                for number in range(37):
                    account.find("orders").put(b"%d" % number, "key")
                await asyncio.sleep(6)
                fetcher.stop()
                await asyncio.wait([running])
                assert isinstance(running.exception(), rp.StoreUnavailableError)

    run_virtual(main())
    first, *_ = [text for text in caplog.messages if "has been draining" in text]
    assert re.search(
        r"it waits for its last checkpoint, with the positions of 37 records, which could not be stored for \d+ s: "
        r"db7 refused the connection; `AwayStore.compare_and_set` failed\. If the process is ended now",
        first,
    )


class CatchesEverything(ScriptedPublisher):
    """Catches every error of its consumer, and its own cancellation."""

    async def run(self, consumer):
        while True:
            with suppress(BaseException):
                await super().run(consumer)
                await asyncio.sleep(1)


class CatchesExceptions(ScriptedPublisher):
    """Catches every error of its consumer."""

    async def run(self, consumer):
        while True:
            with suppress(Exception):
                await super().run(consumer)


class PublisherSource(ScriptedSource):
    def __init__(self, kind):
        super().__init__(per_read=2)
        self.kind = kind

    async def create(self, shard, starting_position, metrics):
        return self.kind(self, self.shards[shard.key], starting_position)


class FullSink(RecordingSink):
    async def write(self, batch):
        raise OSError("the disk is full")


def test_a_job_that_failed_ends_after_the_drain_timeout_whatever_a_publisher_catches(caplog):
    async def main():
        source = PublisherSource(CatchesEverything)
        source.add("a", *range(20))
        fetcher = make_fetcher(source, FullSink())
        await fetcher.open()
        running = asyncio.create_task(fetcher.run())
        await fetcher.ending.wait()
        began, reasons, (hung,) = (
            asyncio.get_running_loop().time(),
            fetcher.reasons_not_ready(),
            fetcher.hung_publishers(),
        )
        (ended,) = await asyncio.gather(running, return_exceptions=True)
        took = asyncio.get_running_loop().time() - began
        await fetcher.close()
        return ended, took, reasons, hung

    ended, took, reasons, hung = run_virtual(main())
    assert isinstance(ended, OSError)
    assert hung.startswith("the publisher of PublisherSource for s/a, which waits at ")
    assert took == pytest.approx(21, abs=1.1)
    assert reasons == ["the run ended with OSError: the disk is full"]
    (line,) = [text for text in caplog.messages if "flink.job.drain.timeout" in text]
    assert line.startswith("the publisher of PublisherSource for s/a, which waits at ")


def test_a_stopped_job_ends_with_its_last_checkpoint_whatever_a_publisher_catches():
    async def main():
        source = PublisherSource(CatchesEverything)
        source.add("a", *range(20))
        fetcher = make_fetcher(source, sink := RecordingSink())
        await fetcher.open()
        running = asyncio.create_task(fetcher.run())
        await asyncio.sleep(5)
        fetcher.stop()
        await running
        written = len(sink.rows)
        await asyncio.sleep(100)
        return written, len(sink.rows), fetcher.snapshot()["shards"]["s/a"]["position"]

    written, later, position = run_virtual(main())
    assert written == later == 20
    assert position is not None


@pytest.mark.parametrize("caught", [Exception, BaseException])
def test_an_error_of_the_consumer_that_a_publisher_swallows_fails_the_run_at_once(caught):
    class WrongBatch(CatchesExceptions):
        async def run(self, consumer):
            while True:
                with suppress(caught):
                    await consumer("no batch")

    async def main():
        source = PublisherSource(WrongBatch)
        source.add("a", 1)
        fetcher = make_fetcher(source, RecordingSink())
        await fetcher.open()
        began = asyncio.get_running_loop().time()
        running = asyncio.create_task(fetcher.run())
        await fetcher.ending.wait()
        took = asyncio.get_running_loop().time() - began
        (ended,) = await asyncio.gather(running, return_exceptions=True)
        await fetcher.close()
        return ended, took

    ended, took = run_virtual(main())
    assert isinstance(ended, rp.PluginError)
    assert str(ended).startswith(
        "WrongBatch.run has caught an error of the consumer and not raised it again: PluginError: WrongBatch gave 'no batch'"
    )
    assert took < 1


def test_a_failed_program_says_what_it_waits_for_without_a_signal(caplog):
    async def main():
        began = asyncio.Event()
        error = OSError("the disk is full")
        telling = asyncio.create_task(
            tell_what_drains(
                "map", lambda: None, lambda: ["the publisher of A for s/a, which waits at a.py:5"], began, lambda: error
            )
        )
        began.set()
        await asyncio.sleep(15)
        telling.cancel()

    run_virtual(main())
    (line,) = caplog.messages
    assert line.startswith(
        "the job has failed (OSError: the disk is full), and has been ending for 10 s: it waits for the publisher of A"
    )


JOB = """
import asyncio
import recordpublisher as rp

class Publisher(rp.RecordPublisher):
    def __init__(self, shard):
        self.shard, self.at = shard, 0

    async def run(self, consumer):
        while True:
            try:
                self.at += 1
                record = rp.UserRecord(b"1", str(self.at), 1_790_000_000.0, "k")
                batch = rp.RecordBatch(self.shard, [record], read_position=rp.SequenceNumber(str(self.at)), raw_count=1, raw_bytes=1)
                await asyncio.sleep(0.01)
                await consumer(batch)
            except BaseException:
                pass

class Factory(rp.RecordPublisherFactory):
    def __init__(self, properties):
        pass

    async def create(self, shard, start, metrics):
        return Publisher(shard)

    async def discover(self, stream):
        return [rp.Shard(stream, "a")]

class Full(rp.Sink):
    async def write(self, batch):
        if batch.records[-1].sequence_number > "3":
            raise OSError("the disk is full")

@rp.hookimpl
def recordpublisher_register_publishers(registry):
    registry.add("stubborn", "job:Factory")

properties = {"flink.stream.recordpublisher": "stubborn", "flink.job.drain.timeout": 1000}
fetcher = rp.DataFetcher("orders", properties, sink=Full())
"""


@pytest.mark.parametrize("program", ["job:fetcher", "asyncio.run"])
def test_the_process_of_a_failed_job_ends_with_1_whatever_a_publisher_catches(program, tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "job-1.dist-info").mkdir()
    (tmp_path / "job-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: job\nVersion: 1\n")
    (tmp_path / "job-1.dist-info" / "entry_points.txt").write_text("[recordpublisher]\njob = job\n")
    command = ["-m", "recordpublisher", "run", program]
    if program == "asyncio.run":
        command = [
            "-c",
            "import asyncio, job\nasync def main():\n  async with job.fetcher: await job.fetcher.run()\nasyncio.run(main())",
        ]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 60}
    ended = subprocess.run([sys.executable, *command], check=False, **options)
    assert ended.returncode == 1, ended.stderr
    assert "the disk is full" in ended.stderr
