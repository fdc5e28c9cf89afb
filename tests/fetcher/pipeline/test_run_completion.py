"""The first reason or error ends a run."""

import asyncio

import pytest

from recordpublisher.fetcher.pipeline.bounded_runs import EndReason, RunCompletion
from recordpublisher.publishers.errors import ImpossibleStateError


async def test_the_first_reason_wins():
    completion = RunCompletion()
    completion.start()
    completion.complete(EndReason.TIP)
    completion.complete(EndReason.STOPPED)
    completion.fail(OSError())

    assert not completion.is_running
    assert await completion.wait() is EndReason.TIP


async def test_an_error_in_the_background_ends_the_run():
    async def work():
        raise OSError("disk full")

    completion = RunCompletion()
    completion.start()
    completion.start_task(work())
    with pytest.raises(OSError, match="disk full"):
        await completion.wait()


async def test_a_cancelled_task_fails_the_run():
    async def work():
        raise asyncio.CancelledError

    completion = RunCompletion()
    completion.start()
    completion.start_task(work())
    with pytest.raises(ImpossibleStateError, match="was cancelled"):
        await completion.wait()


async def test_before_a_run_nothing_ends():
    completion = RunCompletion()
    completion.complete(EndReason.STOPPED)

    assert not completion.is_running


async def test_a_run_that_starts_after_stop_has_ended():
    completion = RunCompletion()
    completion.stop()
    completion.start()

    assert await completion.wait() is EndReason.STOPPED
