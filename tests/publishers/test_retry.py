import asyncio
import contextlib
import gc
import itertools
import weakref

import pytest

from recordpublisher.publishers.errors import (
    FatalKinesisError,
    RetriesExhaustedError,
    StreamNotActiveError,
    ThrottledError,
    TransientError,
)
from recordpublisher.publishers.retry import Failures, RetryPolicy, call_with_retries, duration_words, retry_listener
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.testing.virtual_time import run_virtual

POLICY = RetryPolicy(max_retries=3, base_ms=100, max_ms=200, exponent=2.0)
BROKEN = TransientError("GetRecords", "InternalFailure", "oh")
THROTTLED = ThrottledError("GetRecords", "ProvisionedThroughputExceededException", "slow down")


def scripted(*outcomes):
    """A function that returns these outcomes in order, or raises those that are errors."""
    left = list(outcomes)

    async def call():
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return call


def test_delays_grow_by_the_exponent_up_to_the_cap():
    assert [POLICY.delay_seconds(attempt, lambda: 1.0) for attempt in range(4)] == [0.1, 0.2, 0.2, 0.2]


def test_delays_are_jittered_from_zero():
    assert POLICY.delay_seconds(0, lambda: 0.0) == 0.0


def test_a_long_outage_does_not_overflow():
    assert RetryPolicy(10**6, 1000, 5000, 1000.0).delay_seconds(10**6, lambda: 1.0) == 5.0


def test_r4_a_transient_error_is_retried_until_a_call_succeeds():
    retried = []
    response = run_virtual(call_with_retries(scripted(BROKEN, THROTTLED, 7), POLICY, on_retry=retried.append))
    assert response == 7
    assert retried == [BROKEN, THROTTLED]


def test_the_exhausted_error_names_api_attempts_and_last_error():
    with pytest.raises(RetriesExhaustedError, match=r"GetRecords failed 4 times in a row.*slow down") as raised:
        run_virtual(call_with_retries(scripted(BROKEN, BROKEN, BROKEN, THROTTLED), POLICY))
    assert raised.value.__cause__ is THROTTLED


def test_an_error_that_a_mistyped_name_explains_better_than_an_outage_is_retried_a_few_times():
    many = RetryPolicy(max_retries=200, base_ms=100, max_ms=200, exponent=2.0)
    with pytest.raises(RetriesExhaustedError, match="failed 4 times in a row"):
        run_virtual(call_with_retries(scripted(*[BROKEN] * 9), many, needs_few=lambda error: error is BROKEN))
    outage = scripted(*[THROTTLED] * 9, BROKEN, BROKEN, 7)
    assert run_virtual(call_with_retries(outage, many, needs_few=lambda error: False)) == 7


def test_without_retries_a_call_is_made_once():
    with pytest.raises(RetriesExhaustedError, match=r"^GetRecords failed with InternalFailure: oh$"):
        run_virtual(call_with_retries(scripted(BROKEN), RetryPolicy(0, 1, 1, 1.0)))


def test_other_errors_are_raised_at_once():
    fatal = FatalKinesisError("GetRecords", "AccessDeniedException", "no")
    with pytest.raises(FatalKinesisError):
        run_virtual(call_with_retries(scripted(fatal, 7), POLICY))


def test_the_wait_is_at_least_the_callers_minimum():
    async def timed():
        await call_with_retries(scripted(THROTTLED, 7), POLICY, min_pause=lambda error: 1.0)
        return asyncio.get_running_loop().time()

    assert 1.0 <= run_virtual(timed()) <= 1.1


def test_a1_retries_and_throttles_are_counted():
    metrics = ShardMetrics()
    run_virtual(call_with_retries(scripted(BROKEN, THROTTLED, 7), POLICY, on_retry=metrics.count_retry))
    assert (metrics.retries, metrics.throttles) == (2, 1)


def test_r3_a_wait_between_calls_is_cancelled_at_once():
    async def cancelled():
        task = asyncio.create_task(call_with_retries(scripted(BROKEN, 7), RetryPolicy(3, 10**6, 10**6, 1.0)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return asyncio.get_running_loop().time()

    assert run_virtual(cancelled()) == 0


def test_a_listener_hears_how_long_a_call_has_waited_and_may_wait():
    heard = []

    async def listened():
        retry_listener.set(lambda error, waited, left: heard.append((error, waited, left)))
        without_jitter = RetryPolicy(max_retries=3, base_ms=0, max_ms=0, exponent=2.0)
        await call_with_retries(scripted(BROKEN, BROKEN, "done"), without_jitter, min_pause=lambda error: 3.0)

    run_virtual(listened())

    assert heard == [(BROKEN, 3.0, 0.0), (BROKEN, 6.0, 0.0)]


def test_the_waits_that_are_left_are_the_longest():
    assert [round(POLICY.longest_seconds(attempt), 3) for attempt in range(4)] == [0.5, 0.4, 0.2, 0]


def test_the_waits_of_endless_retries_are_known_at_once():
    endless = RetryPolicy(max_retries=2**31, base_ms=100, max_ms=1_000, exponent=1.5)
    assert endless.longest_seconds(0) == pytest.approx(2**31, rel=1e-6)
    assert endless.longest_seconds(2**31 - 2) == 2


CREATING = StreamNotActiveError("ListShards", "orders")


def test_a_stream_that_is_being_created_is_waited_for_without_using_the_retry_budget():
    outcomes = [CREATING] * 100 + [BROKEN, 7]
    assert run_virtual(call_with_retries(scripted(*outcomes), RetryPolicy(1, 1, 1, 1.0))) == 7


def test_a_stream_that_stays_in_creation_ends_the_wait_after_minutes_and_is_named():
    async def timed():
        with pytest.raises(RetriesExhaustedError, match="stream 'orders' is CREATING"):
            await call_with_retries(scripted(*[CREATING] * 151), POLICY)
        return asyncio.get_running_loop().time()

    assert 200 < run_virtual(timed()) < 400


def test_an_exponent_beyond_what_a_float_holds_waits_the_longest_delay():
    assert RetryPolicy(max_retries=3, base_ms=100, max_ms=200, exponent=1e200).delay_seconds(2, lambda: 1.0) == 0.2


def test_a_call_within_one_whose_retries_are_counted_is_retried_for_its_own_time():
    counted = RetryPolicy(max_retries=10_000, base_ms=300, max_ms=5_000, exponent=1.5)
    timed = RetryPolicy(0, 300, 5_000, 1.5, max_outage_ms=900_000)

    async def main():
        loop, part = asyncio.get_running_loop(), scripted(BROKEN, BROKEN, 7)

        async def whole():
            if loop.time() < 1_000:
                raise BROKEN
            return await call_with_retries(part, timed)

        return await call_with_retries(whole, counted)

    assert run_virtual(main()) == 7


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.0001, "1 ms"),
        (0.03, "30 ms"),
        (0.9999, "1 s"),
        (1.4, "1 s"),
        (119, "119 s"),
        (900, "15 min"),
        (18_000, "5 h"),
        (216_000, "2.5 d"),
    ],
)
def test_a_duration_is_shown_in_a_unit_in_which_it_is_not_zero(seconds, words):
    assert duration_words(seconds) == words


def test_a_plugin_that_gives_the_message_of_its_error_alone_is_named():
    async def fail():
        raise TransientError("the archive is away")

    words = r"^Lines\.discover failed 3 times in a row, for .*; the last error: the archive is away$"
    with pytest.raises(RetriesExhaustedError, match=words):
        run_virtual(call_with_retries(fail, RetryPolicy(2, 10, 10, 1.0), service="Lines.discover"))


def test_time_in_which_the_process_was_suspended_during_a_call_is_no_part_of_the_outage():
    policy = RetryPolicy(0, 300, 5_000, 1.5, max_outage_ms=900_000)
    calls = []

    async def call():
        calls.append(asyncio.get_running_loop().time())
        if len(calls) == 2:
            await asyncio.sleep(0.5)
            asyncio.get_running_loop().suspend(3_600)
            await asyncio.sleep(0)
        if len(calls) < 4:
            raise BROKEN
        return 7

    assert run_virtual(call_with_retries(call, policy)) == 7


def test_a_call_that_really_takes_as_long_is_a_part_of_the_outage():
    policy = RetryPolicy(0, 300, 5_000, 1.5, max_outage_ms=900_000)

    async def call():
        await asyncio.sleep(600)
        raise BROKEN

    with pytest.raises(RetriesExhaustedError, match="failed 3 times in a row, for 20 min"):
        run_virtual(call_with_retries(call, policy))


def test_failures_that_are_dropped_leave_no_timer_behind():
    """A reader of enhanced fan-out that is cancelled drops its failures."""

    async def main():
        Failures(POLICY).pause_after(BROKEN)
        await asyncio.sleep(10)
        return len(asyncio.get_running_loop()._scheduled)

    assert run_virtual(main()) == 0


@pytest.mark.parametrize(("pause", "outages"), [(4, 1), (20, 2)])
def test_calls_that_are_given_up_and_soon_made_again_are_one_outage_in_the_log(caplog, pause, outages):
    async def job():
        loop = asyncio.get_running_loop()

        async def call():
            if loop.time() < 43:
                raise TransientError("GetItem", "ConnectionError", "refused")

        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(4):
                    await call_with_retries(call, RetryPolicy(0, 500, 500, 1.0, 900_000), service="the store")
                    return
            await asyncio.sleep(pause)

    run_virtual(job())
    told = [line.partition(";")[0].removeprefix("calls to the store ") for line in caplog.messages]
    assert told.count("have failed for 2 s") == outages
    assert (told[-1] == "succeed again, after 43 s") is (outages == 1)


def test_a_call_is_made_again_when_the_service_wants_it():
    asked = TransientError("GET /changes", "429", "slow down", retry_after=5)
    at = []

    async def call():
        at.append(asyncio.get_running_loop().time())
        if len(at) < 3:
            raise asked

    run_virtual(call_with_retries(call, POLICY))
    assert [5 <= later - before <= 5.2 for before, later in itertools.pairwise(at)] == [True, True]


def test_an_outage_of_a_call_within_another_one_is_not_waited_for_twice():
    policy = RetryPolicy(0, 300, 1_000, 1.5, max_outage_ms=15_000)

    async def call():
        raise BROKEN

    async def transaction():
        try:
            await call_with_retries(call, policy)
        except RetriesExhaustedError as error:
            raise TransientError("a transaction", "Unavailable", str(error)) from error

    async def job():
        began = asyncio.get_running_loop().time()
        with pytest.raises(RetriesExhaustedError):
            await call_with_retries(lambda: call_with_retries(transaction, policy), policy)
        return asyncio.get_running_loop().time() - began

    assert 14 <= run_virtual(job()) <= 16


def test_an_earlier_outage_within_a_call_does_not_shorten_a_later_one():
    policy = RetryPolicy(0, 300, 1_000, 1.5, max_outage_ms=15_000)

    async def job():
        loop = asyncio.get_running_loop()

        async def call():
            if loop.time() % 100 < 10:  # Ten seconds of each hundred
                raise BROKEN

        async def several():
            for _ in range(5):
                await call_with_retries(call, policy)
                await asyncio.sleep(100 - loop.time() % 100)

        await call_with_retries(several, policy)
        return loop.time()

    assert run_virtual(job()) == pytest.approx(500, abs=1)


@pytest.mark.parametrize("ends", ["cancelled", "after the call"])
def test_a_call_that_was_given_up_does_not_shorten_a_later_outage(ends):
    policy = RetryPolicy(0, 300, 1_000, 1.5, max_outage_ms=15_000)
    started = []

    async def job():
        loop = asyncio.get_running_loop()

        async def call():
            if loop.time() % 100 < 10:
                raise BROKEN

        async def two_outages():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await call_with_retries(call, policy)
            await asyncio.sleep(100 - loop.time() % 100)
            await call_with_retries(call, policy)

        async def start():
            started.append(asyncio.create_task(two_outages()))

        if ends == "cancelled":
            await call_with_retries(two_outages, policy)
        else:
            await call_with_retries(start, policy)
            await started[0]

    run_virtual(job())


def test_the_outage_log_keeps_no_error_because_its_traceback_would_keep_the_batch():
    class Batch:
        pass

    async def write():
        batch = Batch()
        kept.append(weakref.ref(batch))
        raise TransientError("PutRows", "InternalFailure", "oh")

    async def give_up():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):  # Not logged yet, because pytest keeps log records.
                await call_with_retries(write, RetryPolicy(0, 500, 500, 1.0, 900_000), service="a target")
        await asyncio.sleep(0)
        gc.collect()
        return [each() for each in kept]

    kept = []
    assert set(run_virtual(give_up())) == {None}
