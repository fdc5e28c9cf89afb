"""CPU of a whole process, from the start of Python to the first record and the end: `consume` and `tail` beside a script with boto3."""

import os
import subprocess
import sys
from statistics import median

import pytest

from benchmarks.figures.table import Row
from benchmarks.processes import ENVIRONMENT, HERE
from benchmarks.servers.live_endpoint import live_endpoint

pytestmark = pytest.mark.benchmark
ROUNDS = 9
ACCESS = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local", "AWS_REGION": "us-east-1"}
TAIL = ["-m", "recordpublisher", "tail", "live", "--no-follow", "-n", "1", "--endpoint"]


def cpu_seconds(*arguments):
    """User and system time of a Python process, all threads."""
    others = {name: value for name, value in ENVIRONMENT.items() if not name.startswith("AWS_")}
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, env=others | ACCESS)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


def test_to_the_first_record(table, tmp_path):
    script = str(HERE / "clients" / "first_record_client.py")
    with live_endpoint("live", 1) as (url, _):
        (tmp_path / "lines").write_text("a record\n")
        cpu_seconds("-m", "recordpublisher", "put", "live", str(tmp_path / "lines"), "--endpoint", url)
        ways = {"`rp.consume`": [script, url, "ours"], "boto3": [script, url, "boto3"], "`tail -n 1`": [*TAIL, url]}
        for command in ways.values():
            cpu_seconds(*command)  # its bytecode is compiled, and its files are in memory
        rounds = [{way: cpu_seconds(*command) for way, command in ways.items()} for _ in range(ROUNDS)]
    seconds = {way: median(measured[way] for measured in rounds) for way in ways}
    boto3 = seconds.pop("boto3")
    for way, ours in seconds.items():
        table.append(Row(f"{way}, CPU to the first record", ours, boto3, None, 1, section="cold start", unit="s"))
