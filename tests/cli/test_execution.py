"""Commands that end by a signal."""

import asyncio
import os
import signal

from recordpublisher.cli.execution import run_until_signal


def test_signals_while_it_closes_do_not_break_off_the_closing():
    closed = []

    async def work():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(100)
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(os.getpid(), number)
                await asyncio.sleep(0.05)
            closed.append(True)

    assert run_until_signal(work()) is None
    assert closed == [True]
