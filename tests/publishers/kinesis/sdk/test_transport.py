"""The deadline of calls, and how many of them start at once (F1)."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from recordpublisher.publishers.errors import TransientError
from recordpublisher.publishers.kinesis.direct_transport import CallStartLimiter
from recordpublisher.publishers.kinesis.sdk.transport import SdkTransport
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from servers.scripted_kinesis import PROPERTIES

RESPONSE = {"Records": [], "FailedRecordCount": 0}


class Sdk:
    """A client of the SDK whose response arrives when the test sets it."""

    def __init__(self):
        self.meta = SimpleNamespace(events=SimpleNamespace(register=lambda *_: None))
        self.response = asyncio.get_running_loop().create_future()

    async def put_records(self, **parameters):
        return await self.response


async def a_call(suspended=0.0, responds=True):
    """The result and the end time of a call with a deadline of 30 s; the process is suspended after a second."""
    loop, sdk = asyncio.get_running_loop(), Sdk()

    @asynccontextmanager
    async def created():
        yield sdk

    given = Properties({**PROPERTIES, "aws.http.client": "SDK", "aws.request.timeout": 30_000})
    connections = SdkTransport(given, clock=VirtualClock())
    connections._create = created
    calling = asyncio.create_task(connections.call("PutRecords", Records=[]))
    await asyncio.sleep(1)
    loop.suspend(suspended)
    if responds:
        loop.call_soon(
            sdk.response.set_result, RESPONSE
        )  # sockets are read in the iteration of the loop in which timers are due
    ended = (await asyncio.gather(calling, return_exceptions=True))[0]
    await connections.close()
    return ended, loop.time()


async def calls_across_a_close():
    """How many clients are open after a call that came while the first client was closed, and after a further close."""
    is_open, may_close = set(), asyncio.Event()

    @asynccontextmanager
    async def created():
        sdk = Sdk()
        sdk.response.set_result(RESPONSE)
        is_open.add(sdk)
        try:
            yield sdk
        finally:
            await may_close.wait()
            is_open.remove(sdk)

    connections = SdkTransport(Properties({**PROPERTIES, "aws.http.client": "SDK"}), clock=VirtualClock())
    connections._create = created
    await connections.call("PutRecords", Records=[])
    closing = asyncio.create_task(connections.close())
    await asyncio.sleep(0.1)
    await connections.call("PutRecords", Records=[])
    may_close.set()
    await closing
    left = len(is_open)
    await connections.close()
    return left, len(is_open)


def test_a_client_that_is_opened_while_another_is_closed_stays_open():
    assert run_virtual(calls_across_a_close()) == (1, 0)


def test_a_call_has_a_deadline():
    error, seconds = run_virtual(a_call(responds=False))

    assert isinstance(error, TransientError)
    assert seconds == pytest.approx(30)


def test_a_response_that_arrived_during_a_suspension_is_read():
    """Otherwise a write that succeeded would be sent again."""
    assert run_virtual(a_call(suspended=600)) == (RESPONSE, 601)


def test_after_a_suspension_a_call_without_a_response_times_out_soon():
    error, seconds = run_virtual(a_call(suspended=600, responds=False))

    assert isinstance(error, TransientError)
    assert 601 < seconds <= 601 + 30


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
