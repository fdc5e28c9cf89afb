"""F1: a thousand calls that begin at once leave the loop room for responses."""

import asyncio

from recordpublisher.publishers.kinesis.sdk_transport import CallStartLimiter


async def turns_taken(turns, callers):
    """In which turn of the loop each caller passed."""
    turn, passed, over = 0, {}, asyncio.Event()

    async def count():
        nonlocal turn
        while not over.is_set():
            turn += 1
            await asyncio.sleep(0)

    async def call(number):
        await turns.wait_for_slot()
        passed[number] = turn

    counting = asyncio.create_task(count())
    await asyncio.gather(*(call(number) for number in range(callers)))
    over.set()
    await counting
    return passed


async def test_so_many_pass_in_a_turn_and_all_in_order():
    passed = await turns_taken(CallStartLimiter(10), 100)

    assert list(passed) == list(range(100))
    assert max(list(passed.values()).count(turn) for turn in passed.values()) <= 10
    assert max(passed.values()) < 30


async def test_a_few_do_not_wait():
    passed = await turns_taken(CallStartLimiter(10), 10)

    assert len(set(passed.values())) == 1


async def test_a_caller_that_was_cancelled_takes_nobodys_place():
    turns = CallStartLimiter(1)
    await turns.wait_for_slot()
    cancelled, waiting = (asyncio.create_task(turns.wait_for_slot()) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)

    async with asyncio.timeout(60):
        await waiting
