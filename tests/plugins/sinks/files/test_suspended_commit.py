"""A process that is suspended anywhere in a commit blocks no other one, and what it wrote is there once or not at all (S6)."""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import recordpublisher as rp
from recordpublisher.plugins.sinks.files.jsonl_sink import JsonlSink

from fakes.batches import batch
from fakes.commits.committing_sink import Start, snapshot_at
from processes.command_line import ROOT, process_environment

STATE = snapshot_at(1, "orders/shardId-1")


def suspended(folder, operation):
    """A process that has stopped at this operation of its commit; None: it has ended before."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("suspended_commit.py")), str(folder), str(operation)],
        env=process_environment(ROOT / "tests"),
        stdout=subprocess.PIPE,
        text=True,
    )
    if os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT).si_code == os.CLD_STOPPED:
        return process
    out, _ = process.communicate()
    assert out == "committed\n"
    return None


async def successor(folder):
    """Open the folder and commit a record; returns what was committed before."""
    sink = JsonlSink(rp.Properties({"flink.sink.jsonl.path": str(folder)}))
    async with asyncio.timeout(20):
        job = Start(sink)
        found = await job.open()
        await sink.write(batch(b"new", shard_id="shardId-1"))
        await job.checkpoint(STATE)
    return found


def rows(folder):
    files = sorted(folder.glob("orders/*/*.jsonl"))
    return [json.loads(line)["data"] for file in files for line in file.read_text().splitlines()]


@pytest.mark.slow
def test_a_suspended_commit_blocks_nobody_and_is_there_once_or_not_at_all(tmp_path):
    outcomes = []
    for operation in itertools.count(1):
        folder = tmp_path / str(operation)
        process = suspended(folder, operation)
        if process is None:
            break
        try:
            found = asyncio.run(successor(folder))
            process.send_signal(signal.SIGCONT)
            out, _ = process.communicate(timeout=20)
        finally:
            process.kill()
        was_committed = bool(found)
        assert rows(folder) == (["old", "new"] if was_committed else ["new"]), operation
        assert (out == "committed\n") == was_committed, operation
        outcomes.append(out.strip())
    assert outcomes[0] in {"FencedError", "StoreUnavailableError"}
    assert outcomes[-1] == "committed"
