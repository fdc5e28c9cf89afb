"""How a command ends: by a signal, or with one line for an error."""

import asyncio
import os
import signal
from errno import ENOENT
from pathlib import Path

from recordpublisher.cli.execution import exit_code, one_line, run_until_signal


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


def test_a_missing_extra_is_one_sentence():
    error = ImportError("the demo needs pyspark: pip install 'recordpublisher[demo]'")

    assert one_line(error) == "the demo needs pyspark: pip install 'recordpublisher[demo]'"
    assert exit_code(error) == 2
    assert one_line(ImportError("No module named 'x'")) == "ImportError: No module named 'x'"


def test_an_error_of_a_file_names_the_file_as_other_tools_do():
    error = FileNotFoundError(ENOENT, "No such file or directory", Path("orders.jsonl"))

    assert one_line(error) == "orders.jsonl: No such file or directory"
