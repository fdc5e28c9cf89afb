"""Log lines of two jobs in one process say which job they are about."""

import asyncio
import contextvars
import logging

import pytest

import recordpublisher as rp
from recordpublisher.local import LocalKinesis
from recordpublisher.plugins.runtime import data_fetcher
from recordpublisher.publishers.log_fields import job_in_lines, log_fields


def broken(record):
    raise ValueError("never")


async def run_both(names):
    """Two jobs that read one stream at the same time, and skip what their handlers refuse."""
    async with LocalKinesis(port=0, streams={"orders": 2}) as kinesis:
        kinesis.stream("orders").put(b"1", "key")
        settings = rp.Properties(kinesis.properties(), start="TRIM_HORIZON")

        async def run(name):
            sink = rp.MapSink(broken, retries=0, on_failure="SKIP")
            async with rp.DataFetcher("orders", settings.merged(name), sink=sink) as fetcher:
                await fetcher.run_bounded(stop_at_tip=True)

        await asyncio.gather(*map(run, names))


async def test_each_line_of_a_job_begins_with_its_name(caplog):
    caplog.set_level(logging.INFO, logger="recordpublisher")
    await run_both([{"flink.job.name": "payments 100%"}, {"flink.job.name": "ledger"}])
    lines = caplog.messages

    assert [line for line in lines if not line.startswith(("job payments 100%: ", "job ledger: "))] == []
    for name in "payments 100%", "ledger":
        assert f"job {name}: this run left out records: 1 skipped, 0 written as dead letters" in lines


class WithoutMetrics(rp.MemorySink):
    def exported_metrics(self):
        raise ValueError("none")


async def test_the_lines_of_calls_beside_the_run_begin_with_the_name(caplog, monkeypatch):
    """A program calls them in tasks of its own: the warning of a job that does not run did not say which of two it was."""
    monkeypatch.setattr(data_fetcher, "_WAIT_READY_SECONDS", 0.0)
    async with LocalKinesis(port=0, streams={"orders": 1}) as kinesis:
        settings = rp.Properties(kinesis.properties(), job_name="ledger")
        async with rp.DataFetcher("orders", settings, sink=WithoutMetrics()) as fetcher:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await fetcher.wait_ready()
            fetcher.sink_metrics()

    assert len(caplog.messages) == 2
    assert all(line.startswith("job ledger: ") for line in caplog.messages)


async def test_a_job_without_a_name_logs_as_before(caplog):
    await run_both([{}])

    assert "this run left out records: 1 skipped, 0 written as dead letters" in caplog.messages


async def test_no_line_after_the_job_and_none_of_the_program_has_its_name(caplog):
    caplog.set_level(logging.INFO)
    with job_in_lines("orders"):
        logging.getLogger("shop").info("of the program")
    logging.getLogger("recordpublisher.run").info("after it")

    assert caplog.messages == ["of the program", "after it"]


async def test_the_command_that_runs_one_job_does_not_repeat_its_name(caplog):
    caplog.set_level(logging.INFO)
    with log_fields(process=0), job_in_lines("orders"):
        logging.getLogger("recordpublisher.run").info("draining")

    assert caplog.messages == ["draining"]


@pytest.mark.filterwarnings("error")
def test_a_coroutine_that_is_closed_elsewhere_is_no_error():
    async def of_job():
        with job_in_lines("orders"):
            await asyncio.sleep(0)

    left = of_job()
    contextvars.copy_context().run(left.send, None)
    left.close()
