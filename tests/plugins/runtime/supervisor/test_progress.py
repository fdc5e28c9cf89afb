"""The sum of the workers' progress reports."""

import asyncio
import io
import time

import pytest
from rich.console import Console

from recordpublisher.cli.commands.run import _live
from recordpublisher.fetcher.monitoring.worker_view import WorkerProgress
from recordpublisher.plugins.runtime.job_progress import JobProgressMeter


def word(worker, records, behind=None, **more):
    given = {"open_shards": 2, "idle_shards": 0, "held_shards": 0, "skipped": 0, "dead_letters": 0, **more}
    return WorkerProgress(worker, records, lag_ms=behind, **given)


def test_the_newest_reports_are_summed_and_the_rate_is_of_the_last_seconds():
    meter = JobProgressMeter(began=9.0)
    assert not meter.has_reports
    meter.update(word(0, 100, behind=500))
    meter.update(word(1, 50, behind=2_500))
    first = meter.sample(10.0)
    meter.update(word(0, 300))
    second = meter.sample(14.0)

    assert (first.records, first.per_second, first.open_shards, first.lag_ms) == (150, 150.0, 4, 2_500)
    assert (second.records, second.per_second, second.lag_ms) == (350, 70.0, 2_500)


def test_the_text_omits_counts_of_zero():
    meter = JobProgressMeter(began=1.0)
    meter.update(word(0, 1_234, behind=1_500, skipped=2, held_shards=1))

    assert str(meter.sample(3.0)) == "1,234 records read, 617/s, 2 shards open, 1 held, 2 skipped, 1.5 s behind"


def test_one_is_singular_and_a_rate_that_is_not_known_is_a_dash():
    meter = JobProgressMeter(began=1.0)
    meter.update(word(0, 1, open_shards=1, dead_letters=1))

    assert str(meter.sample(1.0)) == "1 record read, -/s, 1 shard open, 1 dead letter"


def test_what_a_sink_is_not_done_with_is_told_also_when_that_is_nothing():
    meter = JobProgressMeter(began=1.0)
    meter.update(word(0, 2_000, unfinished=1_100))
    meter.update(word(1, 500))
    assert str(meter.sample(2.0)).startswith("2,500 records read, 1,100 not finished, 1,400/s")
    meter.update(word(0, 2_000, unfinished=0, left=29))
    assert str(meter.sample(2.5)).startswith("2,500 records read, 0 not finished, 29 left for the next start, ")
    meter.update(word(0, 2_000, unfinished=0))
    assert str(meter.sample(3.0)).startswith("2,500 records read, 0 not finished")


def test_the_rate_is_of_what_was_finished_and_not_of_what_is_left_for_the_next_start():
    meter = JobProgressMeter(began=0.0)
    meter.update(word(0, 600, unfinished=580))
    assert meter.sample(10.0).per_second == 2.0
    meter.update(word(0, 600, unfinished=0, left=520))
    assert meter.sample(10.0).per_second == 8.0


def test_a_write_that_has_not_returned_makes_no_rate_of_its_own():
    meter = JobProgressMeter(began=0.0)
    meter.update(word(0, 0, unfinished=100))
    assert meter.sample(10.0).per_second == 0.0


async def test_brackets_in_an_error_do_not_end_the_line_on_a_terminal(monkeypatch):
    """The library rich would take them for its own marks."""
    monkeypatch.setattr("recordpublisher.cli.commands.run._LIVE_SECONDS", 0.01)
    meter = JobProgressMeter(began=time.monotonic())
    meter.update(word(0, 1, unread_ms=5_000, read_failure="OSError: [red][/orders] is gone"))
    console = Console(file=io.StringIO(), force_terminal=True, width=200)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await _live(meter, console)

    assert "OSError: [red][/orders] is gone" in console.file.getvalue()
