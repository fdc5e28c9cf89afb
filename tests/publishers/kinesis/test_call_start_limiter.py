"""F1: a thousand calls that start at once do not block the loop."""

import asyncio

from recordpublisher.publishers.kinesis.sdk_transport import CallStartLimiter


async def iterations_of(limiter, callers):
    """The iteration of the loop in which each call started."""
    iteration, started, over = 0, {}, asyncio.Event()

    async def count():
        nonlocal iteration
        while not over.is_set():
            iteration += 1
            await asyncio.sleep(0)

    async def call(number):
        await limiter.wait_for_slot()
        started[number] = iteration

    counting = asyncio.create_task(count())
    await asyncio.gather(*(call(number) for number in range(callers)))
    over.set()
    await counting
    return started


async def test_at_most_the_limit_starts_in_an_iteration_and_all_in_order():
    started = await iterations_of(CallStartLimiter(10), 100)

    assert list(started) == list(range(100))
    assert max(list(started.values()).count(each) for each in started.values()) <= 10
    assert max(started.values()) < 30


async def test_calls_within_the_limit_do_not_wait():
    started = await iterations_of(CallStartLimiter(10), 10)

    assert len(set(started.values())) == 1


async def test_a_cancelled_call_takes_no_slot():
    limiter = CallStartLimiter(1)
    await limiter.wait_for_slot()
    cancelled, waiting = (asyncio.create_task(limiter.wait_for_slot()) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)

    async with asyncio.timeout(60):
        await waiting
