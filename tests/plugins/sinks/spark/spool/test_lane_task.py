"""How a lane's task ends: by itself, when told, when the driver is gone, and when it hangs."""

from __future__ import annotations

import asyncio

import pytest

from recordpublisher.plugins.sinks.spark.spool.lane_task import until_cut
from recordpublisher.plugins.sinks.spark.spool.lifeline import DriverGoneError


class Run:
    """A fetcher that ends when told to stop, unless it hangs."""

    def __init__(self, hangs: bool = False) -> None:
        self.ended = asyncio.Event()
        self.hangs = hangs
        self.was_cancelled = False

    async def run(self) -> int:
        try:
            await self.ended.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return 7

    def stop(self) -> None:
        if not self.hangs:
            self.ended.set()


class Line:
    def __init__(self, is_word: bool | None) -> None:
        self._is_word = is_word

    async def until_cut(self) -> bool:
        if self._is_word is None:
            await asyncio.Event().wait()
        return bool(self._is_word)


async def test_a_fetcher_may_end_by_itself():
    run = Run()
    run.stop()
    assert await until_cut(run, Line(None)) == 7


async def test_told_to_stop_it_ends_well():
    assert await until_cut(Run(), Line(True)) == 7


async def test_without_a_driver_the_task_fails_after_it_has_stored_what_it_read():
    run = Run()
    with pytest.raises(DriverGoneError, match="the driver is gone"):
        await until_cut(run, Line(False))
    assert run.ended.is_set()


async def test_a_fetcher_that_hangs_is_given_up():
    run = Run(hangs=True)
    with pytest.raises(DriverGoneError, match="did not end within"):
        await until_cut(run, Line(True), drain_seconds=0.01)
    assert run.was_cancelled
