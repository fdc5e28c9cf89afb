"""How a command ends: by a signal, or with one line for an error."""

import asyncio
import os
import signal
from errno import ENOENT
from pathlib import Path

import pytest
import typer

from recordpublisher.cli.execution import (
    LONGEST_LINE,
    RetryNotice,
    exit_code,
    one_line,
    print_note,
    run_to_end,
    run_until_signal,
)
from recordpublisher.publishers.errors import RetriesExhaustedError, TransientError
from recordpublisher.publishers.retry import RetryPolicy, call_with_retries, retry_listener
from recordpublisher.testing import run_virtual


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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_work_without_its_result_ends_with_the_signal(number, code):
    async def work():
        os.kill(os.getpid(), number)
        await asyncio.sleep(100)

    with pytest.raises(typer.Exit) as ended:
        run_to_end(work())
    assert ended.value.exit_code == code


def test_a_missing_extra_is_one_sentence():
    error = ImportError("the demo needs pyspark: pip install 'recordpublisher[demo]'")

    assert one_line(error) == "the demo needs pyspark: pip install 'recordpublisher[demo]'"
    assert exit_code(error) == 2
    assert one_line(ImportError("No module named 'x'")) == "ImportError: No module named 'x'"


def test_an_error_of_a_file_names_the_file_as_other_tools_do():
    error = FileNotFoundError(ENOENT, "No such file or directory", Path("orders.jsonl"))

    assert one_line(error) == "orders.jsonl: No such file or directory"
    error.add_note("the sink failed")
    assert one_line(error) == "orders.jsonl: No such file or directory; the sink failed"


def test_a_long_message_keeps_its_beginning_and_its_remedy():
    line = one_line(RetriesExhaustedError("ListStreams failed: " + "<html>" * 1_000 + " check aws.endpoint"))

    assert len(line) <= LONGEST_LINE + len(" ... ")
    assert line.startswith("ListStreams failed: <html>")
    assert line.endswith(" check aws.endpoint")


def test_a_note_is_a_line_on_stderr(capsys):
    print_note("the endpoint listens")

    assert capsys.readouterr() == ("", "recordpublisher: the endpoint listens\n")


def failing_command(policy, calls=1, pause=0.0):
    """A command whose calls are refused again and again, one call after the other; `pause`: seconds at least between tries."""

    async def refused():
        raise TransientError("ListStreams", "EndpointConnectionError", "http://127.0.0.1:1/ refused")

    async def work():
        retry_listener.set(RetryNotice())
        for _ in range(calls):
            with pytest.raises(RetriesExhaustedError):
                await call_with_retries(refused, policy, min_pause=lambda _: pause)

    run_virtual(work())


def test_a_command_that_retries_for_more_than_two_seconds_says_what_it_waits_for_once(capsys):
    failing_command(RetryPolicy(max_retries=9, base_ms=1_000, max_ms=1_000, exponent=1), calls=2, pause=1.0)

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "recordpublisher: ListStreams failed with EndpointConnectionError: http://127.0.0.1:1/ refused;"
    )
    assert line.endswith("s in all (Ctrl-C ends it)")


def test_short_retries_are_not_mentioned(capsys):
    failing_command(RetryPolicy(max_retries=3, base_ms=500, max_ms=500, exponent=1))

    assert capsys.readouterr().err == ""


def test_every_command_says_what_it_waits_for():
    async def listener():
        return retry_listener.get()

    assert isinstance(run_until_signal(listener()), RetryNotice)
    assert retry_listener.get() is None
