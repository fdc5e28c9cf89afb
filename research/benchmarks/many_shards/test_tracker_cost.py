"""The cost of a tracker with 1,800 subtasks, in a separate process, that report once a second."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks.processes import ENVIRONMENT, HERE

SUBTASKS, SECONDS = 1_800, 30
MOST_OF_A_CORE, SLOWEST_MS = 0.10, 100.0


def cpu_seconds(pid):
    """User and system time of a process so far."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.benchmark
def test_a_tracker_serves_1800_subtasks_on_a_tenth_of_a_core(capsys):
    command = [sys.executable, "-m", "recordpublisher", "tracker", "--port", "0", "--token", "secret"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as tracker:
        address = tracker.stderr.readline().split()[-1]
        clients = [
            sys.executable,
            str(HERE / "clients/tracker_clients.py"),
            address,
            "secret",
            str(SUBTASKS),
            str(SECONDS),
        ]
        try:
            with subprocess.Popen(clients, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as subtasks:
                assert subtasks.stdout.readline() == "begin\n"
                before = cpu_seconds(tracker.pid)
                figures = json.loads(subtasks.stdout.readline())
                used = (cpu_seconds(tracker.pid) - before) / SECONDS
        finally:
            tracker.terminate()
    with capsys.disabled():
        print(
            f"\ntracker: {SUBTASKS} subtasks, {figures['reports'] / SECONDS:.0f} reports/s: {used:.1%} of a core "
            f"(goal {MOST_OF_A_CORE:.0%}), report to response p50 {figures['p50_ms']:.2f} ms, p99 {figures['p99_ms']:.2f} ms "
            f"(goal {SLOWEST_MS:.0f} ms), max {figures['max_ms']:.1f} ms, {figures['notifications'] / SECONDS:.1f} notifications/s; "
            f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        )

    assert figures["unanswered"] == 0
    assert figures["reports"] >= SUBTASKS * SECONDS
