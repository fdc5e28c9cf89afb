"""A publisher that misuses its consumer fails its contract at once, with a sentence."""

import asyncio
from contextlib import suppress
from typing import ClassVar

import pytest

from recordpublisher import RunResult
from recordpublisher.testing import run_virtual

from fakes.list_publisher import PAYLOADS, ListContract, ListPublisher, SwallowsErrors


class CatchesEverything(ListPublisher):
    """Catches every error of the consumer, and its own cancellation too."""

    caught: ClassVar = BaseException

    async def run(self, consumer):
        while self.at < len(PAYLOADS):
            with suppress(self.caught):
                await asyncio.sleep(0.2)
                batch = self.batch()
                self.metrics.count_read(batch)
                self.advance(await consumer(batch))
        return RunResult.COMPLETE


class CatchesExceptions(CatchesEverything):
    """Catches every error of the consumer, but not its cancellation."""

    caught: ClassVar = Exception


class CatchesInTightLoop(ListPublisher):
    """Catches everything, and waits for nothing but the consumer."""

    async def run(self, consumer):
        while self.at < len(PAYLOADS):
            with suppress(BaseException):
                self.advance(await consumer(self.batch()))
        return RunResult.COMPLETE


class NeverEndsWhenCancelled(ListPublisher):
    """Waits on when it is cancelled, without a further call."""

    async def run(self, consumer):
        try:
            return await super().run(consumer)
        except asyncio.CancelledError:
            while True:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(3600)


class CallsInTask(ListPublisher):
    """Calls the consumer in a task, without waiting for it."""

    async def run(self, consumer):
        while self.at < len(PAYLOADS):
            self.task = asyncio.create_task(consumer(self.batch()))
            self.at += 3
            await asyncio.sleep(0.05)
        return RunResult.COMPLETE


class CallsInThread(ListPublisher):
    """Calls the consumer in the event loop of another thread."""

    async def run(self, consumer):
        while self.at < len(PAYLOADS):
            taken = await asyncio.to_thread(lambda: asyncio.run(consumer(self.batch())))
            self.advance(taken)
        return RunResult.COMPLETE


class CallsWithoutAwait(ListPublisher):
    """Calls the consumer and does not await it."""

    async def run(self, consumer):
        consumer(self.batch())
        return RunResult.COMPLETE


RAISED, CANCELLED, SLOW = (
    "test_an_error_of_the_consumer_is_raised",
    "test_a_cancelled_run_leaves_nothing_behind_and_can_resume",
    "test_a_slow_consumer_is_the_back_pressure",
)


@pytest.mark.parametrize(
    ("broken", "test", "message"),
    [
        (CatchesEverything, RAISED, "`run` swallowed an error of the consumer"),
        (CatchesInTightLoop, RAISED, "`run` swallowed an error of the consumer"),
        (CatchesInTightLoop, CANCELLED, "`run` swallowed its cancellation and called the consumer again"),
        (CatchesExceptions, RAISED, "`run` swallowed an error of the consumer"),
        (SwallowsErrors, RAISED, "`run` swallowed an error of the consumer"),
        (CatchesEverything, CANCELLED, "`run` swallowed its cancellation and called the consumer again"),
        (NeverEndsWhenCancelled, CANCELLED, r"has not ended 5 s after it was cancelled: it waits at \S+:\d+ \(run\)"),
        (CallsInTask, SLOW, "`run` continued before the consumer had returned"),
        (CallsInThread, SLOW, "was called in another event loop or thread"),
        (CallsWithoutAwait, SLOW, "`run` does not await the consumer"),
    ],
)
def test_a_publisher_that_misuses_its_consumer_fails_at_once_with_a_sentence(broken, test, message):
    class Broken(ListContract):
        publisher = broken

        deadline = 10.0

        def execute(self, work):
            # Virtual time knows no threads.
            asyncio.run(work) if broken is CallsInThread else run_virtual(work)

    with pytest.raises(AssertionError, match=message):
        getattr(Broken(), test)()
