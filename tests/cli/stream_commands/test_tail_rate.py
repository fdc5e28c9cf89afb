"""The rate that `tail` shows on a terminal."""

import asyncio
import os
import pty
import sys

from recordpublisher.cli.stream_commands.tail import PrintedRate
from recordpublisher.local import serve_in_thread
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from processes.command_line import command, sdk_environment


def shown(monkeypatch, capsys, is_terminal):
    """What is said about 30 records in the first ten seconds, and none in the next 25."""

    async def run():
        rate = PrintedRate(VirtualClock())
        async with rate.shown():
            await asyncio.sleep(5)
            rate.add(30)
            await asyncio.sleep(30)

    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    run_virtual(run())
    return capsys.readouterr().err.splitlines()


def test_a_terminal_is_told_now_and_then_and_at_the_end(monkeypatch, capsys):
    assert shown(monkeypatch, capsys, True) == [
        "recordpublisher: 30 records in 10.0 s (3.0 a second)",
        "recordpublisher: 30 records in 35.0 s (0.9 a second)",
    ]


def test_a_pipe_stays_quiet(monkeypatch, capsys):
    assert shown(monkeypatch, capsys, False) == []


def test_records_go_to_stdout_and_their_rate_to_the_terminal():
    ours, terminal = pty.openpty()
    with serve_in_thread(streams={"orders": 1}) as served:
        served.call(served.endpoint.stream("orders").put, b"1", "k")
        done = command("tail", "orders", "--no-follow", stderr=terminal, **sdk_environment(served))
    os.close(terminal)
    said = os.read(ours, 10_000).decode()
    os.close(ours)

    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    assert said.startswith("recordpublisher: 1 record in ")
