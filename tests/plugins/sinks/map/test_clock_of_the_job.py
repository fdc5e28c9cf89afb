"""A `MapSink` takes the time from the clock of its job, unless it was given one."""

import pytest

import recordpublisher as rp
from recordpublisher.testing import VirtualClock, archive_of, record, run_virtual


@pytest.mark.parametrize("options", [{}, {"clock": VirtualClock()}])
def test_a_record_is_given_up_after_its_time_on_the_clock_of_the_job(options):
    async def too_early(_):
        raise rp.TransientError("apply", "TooEarly", "the order does not exist yet", retry_after=1)

    async def job(properties, clock):
        sink = rp.MapSink(too_early, on_failure="SKIP", retry_for="2m", **options)
        async with rp.DataFetcher("payments", properties, sink=sink, clock=clock) as fetcher:
            await fetcher.run()
        return clock.monotonic(), sink.metrics()["skipped"]

    with archive_of([record("p0", stream="payments")]) as properties:
        seconds, skipped = run_virtual(job(properties, VirtualClock()))
    assert 120 <= seconds < 130
    assert skipped == 1
