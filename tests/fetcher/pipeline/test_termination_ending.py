"""The first reason or error ends a run."""

import asyncio

import pytest

from recordpublisher.fetcher.pipeline.bounds import EndReason
from recordpublisher.fetcher.pipeline.termination import RunCompletion
from recordpublisher.publishers.errors import ImpossibleStateError


async def test_the_first_reason_wins():
    ending = RunCompletion()
    ending.begin()
    ending.finish(EndReason.TIP)
    ending.finish(EndReason.STOPPED)
    ending.fail(OSError())

    assert not ending.is_running
    assert await ending.reached() is EndReason.TIP


async def test_an_error_in_the_background_ends_the_run():
    async def work():
        raise OSError("disk full")

    ending = RunCompletion()
    ending.begin()
    ending.background(work())
    with pytest.raises(OSError, match="disk full"):
        await ending.reached()


async def test_a_cancellation_from_within_is_no_endless_wait():
    async def work():
        raise asyncio.CancelledError

    ending = RunCompletion()
    ending.begin()
    ending.background(work())
    with pytest.raises(ImpossibleStateError, match="cancelled from within"):
        await ending.reached()


async def test_before_a_run_nothing_ends():
    ending = RunCompletion()
    ending.finish(EndReason.STOPPED)

    assert not ending.is_running
