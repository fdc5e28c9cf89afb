"""How a command ends: by a signal, or with one line for an error."""

import asyncio
import os
import signal
import sys
import threading
from errno import ENOENT
from pathlib import Path

import pytest
import typer

from recordpublisher.cli.execution import (
    LONGEST_LINE,
    CommandGroup,
    RetryNotice,
    exit_code,
    one_line,
    print_note,
    run_to_end,
    run_until_signal,
)
from recordpublisher.cli.options import StreamProperties, with_properties
from recordpublisher.publishers.errors import RetriesExhaustedError, TransientError
from recordpublisher.publishers.kinesis.error_mapping import NoCredentialsError
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


def test_a_signal_after_the_patience_ends_a_command_whose_loop_is_held_up(monkeypatch):
    monkeypatch.setattr("recordpublisher.cli.execution.PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(os, "_exit", sys.exit)
    full, blocked = os.pipe()

    async def work():
        os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        while True:
            os.write(blocked, b"x" * 4096)

    with pytest.raises(SystemExit) as ended:
        run_until_signal(work())
    os.close(full)
    os.close(blocked)
    assert ended.value.code == 143


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_work_without_its_result_ends_with_the_signal(number, code):
    async def work():
        os.kill(os.getpid(), number)
        await asyncio.sleep(100)

    with pytest.raises(typer.Exit) as ended:
        run_to_end(work())
    assert ended.value.exit_code == code


def test_a_signal_ends_work_on_a_loop_without_signal_handlers(monkeypatch):
    def absent(*_):
        raise NotImplementedError

    monkeypatch.setattr(asyncio.SelectorEventLoop, "add_signal_handler", absent)
    monkeypatch.setattr(asyncio.SelectorEventLoop, "remove_signal_handler", absent)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    async def work():
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(100)

    try:
        with pytest.raises(typer.Exit) as ended:
            run_to_end(work())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert ended.value.exit_code == 143


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


def test_where_credentials_were_looked_for_is_a_list(capsys):
    app = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False)
    app.callback()(lambda: None)

    @app.command()
    def look():
        raise NoCredentialsError

    with pytest.raises(SystemExit, match="2"):
        app(["look"])
    first, *places, _, _ = capsys.readouterr().err.splitlines()
    assert first == "recordpublisher: No AWS credentials found. Looked in:"
    assert [place.startswith("recordpublisher: - the ") for place in places] == [True] * 3


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
    assert line.endswith("s in all (Ctrl-C ends the command)")


def test_short_retries_are_not_mentioned(capsys):
    failing_command(RetryPolicy(max_retries=3, base_ms=500, max_ms=500, exponent=1))

    assert capsys.readouterr().err == ""


def test_every_command_says_what_it_waits_for():
    async def listener():
        return retry_listener.get()

    assert isinstance(run_until_signal(listener()), RetryNotice)
    assert retry_listener.get() is None


def test_a_command_that_a_signal_interrupts_does_not_report_success():
    @with_properties
    async def change(properties: StreamProperties) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(100)

    with pytest.raises(typer.Exit) as ended:
        change(file=None)
    assert ended.value.exit_code == 143


def test_an_os_error_of_a_plugin_has_its_line():
    def fail():
        raise TimeoutError

    with pytest.raises(TimeoutError) as caught:
        fail()
    caught.value.add_note("`Lines.discover` for orders failed")
    line = one_line(caught.value)
    assert line.startswith("TimeoutError: `Lines.discover` for orders failed; at ")
    assert "test_execution.py:" in line
