"""`run --reload` passes signals on to the job, and does not leave it behind."""

import signal
import sys
import time

import pytest

from recordpublisher.cli import reload

JOB = """
import signal, sys, time
number = 0
def on_signal(*_):
    global number
    number += 1
    open(f"signal-{number}", "w").close()
    if number == 2:
        sys.exit(7)
signal.signal(signal.SIGTERM, on_signal)
open("started", "w").close()
while True:
    time.sleep(0.05)
"""


@pytest.mark.parametrize("numbers", [(signal.SIGINT, signal.SIGINT), (signal.SIGHUP,)])
def test_a_second_signal_and_a_closed_terminal_end_the_job(tmp_path, monkeypatch, numbers):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reload, "HANGUP_SECONDS", 0.1)
    made, started = reload.subprocess.Popen, []

    class Job(made):
        """Takes the signals of this process when it has started, and again when it was told to end."""

        def __init__(self, command, **options):
            super().__init__([sys.executable, "-c", JOB], **options)
            started.append(self)

        def poll(self):
            if (tmp_path / "started").exists() and len(left) == len(numbers):
                signal.raise_signal(left.pop(0))
            return super().poll()

        def wait(self, timeout=None):
            while not (tmp_path / "signal-1").exists():  # two signals at once would be one
                time.sleep(0.01)
            if left:
                signal.raise_signal(left.pop(0))
            return super().wait(timeout)

    left = [*numbers]
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setattr(reload.subprocess, "Popen", Job)
    try:
        assert reload.run_reloading(["run", "job.properties"]) == 7
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for job in started:  # a test that failed leaves none behind, which would fail another one
            job.kill()
            made.wait(job)
