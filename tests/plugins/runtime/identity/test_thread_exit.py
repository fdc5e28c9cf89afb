"""A job in a thread whose program ends: its last checkpoint is stored."""

import asyncio
import os
import subprocess
import sys
import threading

import pytest

import recordpublisher as rp
from recordpublisher.plugins.runtime.background_loop import JobsInThreads

from fakes.memory_streams import PROPERTIES, install

PROGRAM = """
import asyncio, sys, threading
import recordpublisher as rp
import pytest
from fakes.memory_streams import PROPERTIES, install

install(pytest.MonkeyPatch(), {"a": [b"1", b"2"]})
read = threading.Event()
sink = rp.MapSink(lambda record: read.set())

async def main():
    async with rp.DataFetcher("orders", PROPERTIES, sink=sink, state_uri=sys.argv[1]) as fetcher:
        if sys.argv[2] == "plain":
            asyncio.get_running_loop().call_later(1, fetcher.stop)
        await fetcher.run()
    print("ended well", flush=True)

threading.Thread(target=lambda: asyncio.run(main()), daemon=sys.argv[2] == "daemon").start()
read.wait()
"""


@pytest.mark.parametrize("kind", ["plain", "daemon"])
def test_the_exit_of_the_program_waits_for_the_last_checkpoint(tmp_path, kind, monkeypatch):
    install(monkeypatch, {"a": [b"1", b"2"]})
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "state"), kind],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | paths,
        timeout=60,
    )

    assert (done.returncode, "Error" in done.stderr) == (0, False), done.stderr
    assert not [*rp.consume("orders", PROPERTIES, stop_at_tip=True, state_uri=str(tmp_path / "state"))]


def in_thread(runs, daemon, ends_without_closing=False):
    """Add a job in a thread that waits for its stop; returns the thread and what was stopped."""
    added, stopped, job = threading.Event(), threading.Event(), object()

    async def main():
        stop = asyncio.Event()
        runs.add(job, lambda: (stopped.set(), stop.set()), 30)
        added.set()
        if ends_without_closing:
            return
        await stop.wait()
        runs.remove(job)

    thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=daemon)
    thread.start()
    added.wait()
    return thread, stopped


@pytest.fixture
def runs():
    made = JobsInThreads()
    made._is_registered = True  # this process does not end
    return made


def test_a_job_of_a_daemon_thread_is_stopped_and_waited_for(runs):
    thread, stopped = in_thread(runs, daemon=True)
    runs.wait()
    thread.join()
    assert stopped.is_set()


def test_a_job_that_its_thread_has_left_open_holds_up_nothing(runs):
    in_thread(runs, daemon=False, ends_without_closing=True)
    runs.wait()


async def test_a_job_of_the_main_thread_is_not_waited_for(runs):
    runs.add(object(), lambda: None, 30)
    runs.wait()
