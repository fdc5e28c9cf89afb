"""The page about compaction: beside a group whose workers are killed, itself killed at any moment, it loses and repeats no row (S6)."""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from groups.exactly_once_sinks import delta, iceberg
from groups.load import SteadyLoad
from groups.worker_group import SHARDS, TIMES, worker_group
from processes.command_line import ROOT, process_environment
from processes.job_files import end
from processes.process_faults import kill

pytestmark = [pytest.mark.timeout(900), pytest.mark.kills]
PAGE = (ROOT / "docs/how-to/compact-files.md").read_text()


class DeltaTables:
    opened, script = delta, "compact_delta.py"

    def __init__(self, target, folder):
        self.arguments, self.environment = [target.properties["flink.sink.delta.uri"]], {}

    def files(self):
        return len(DeltaTable(self.arguments[0]).file_uris())

    def countries(self):
        return Counter(DeltaTable(self.arguments[0]).to_pyarrow_table()["country"].to_pylist())


class IcebergTables:
    opened, script = iceberg, "compact_iceberg.py"

    def __init__(self, target, folder):
        self.catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
        self.arguments = ["lake.orders"]
        self.environment = {
            f"PYICEBERG_CATALOG__DEFAULT__{name.upper()}": value for name, value in self.catalog.items()
        }

    def table(self):
        return load_catalog("default", **self.catalog).load_table("lake.orders")

    def files(self):
        return len(list(self.table().scan().plan_files()))

    def countries(self):
        return Counter(row["address"]["country"] for row in self.table().scan().to_arrow().to_pylist())


class Compactions:
    """Runs the page's script again and again in a thread, and kills half of the runs. It owns the processes.

    A run is killed within the time that the last whole run took: before it has read, while it writes, or after its commit.
    """

    def __init__(self, tables, chance, log):
        self.log = log
        (self._script,) = re.findall(rf"```python\n(# {tables.script}\n.*?)```", PAGE, re.DOTALL)
        self._tables, self._chance, self._ended = tables, chance, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.codes = []

    def once(self, seconds=None):
        command = [sys.executable, "-c", self._script, *self._tables.arguments]
        environment = {**os.environ, **process_environment(ROOT / "tests"), **self._tables.environment}
        with self.log.open("a") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
        return process.wait()

    def _run(self):
        took = 0.0
        while not self._ended.wait(0.2):
            kill_after, began = self._chance.choice([self._chance.uniform(0, took), None]), time.monotonic()
            self.codes.append(self.once(kill_after if took else None))
            took = took if self.codes[-1] else time.monotonic() - began

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()


@pytest.mark.parametrize("kind", [DeltaTables, IcebergTables])
def test_compaction_beside_a_job_loses_and_repeats_no_row_whoever_is_killed(tmp_path, kind):
    given = {"flink.deserializer.schema": "n BIGINT, address STRUCT<country: STRING>"}
    given["flink.sink.partitions"] = "country={address.country}"
    with (
        kind.opened(tmp_path) as target,
        worker_group(tmp_path, SHARDS, {**target.properties, **TIMES, **given}) as group,
    ):
        group.payload = lambda number: b'{"n": %d, "address": {"country": "%s"}}' % (number, [b"NO", b"SE"][number % 2])
        tables = kind(target, tmp_path)

        def wait_until_all_is_written():
            sent = set(group.sent)
            group.wait_until(lambda: sent <= {number for _, number in target.rows()}, 120)

        with SteadyLoad(group, SHARDS, 4):
            for name in ("first", "second"):
                group.join(name)
            group.wait_until(lambda: any("joins its group" in group.log(name) for name in ("first", "second")))
            group.wait_until(
                lambda: (tmp_path / "out" / "_delta_log").exists() or (tmp_path / "lake" / "lake").exists()
            )
            wait_until_all_is_written()
            with Compactions(tables, random.Random(7), tmp_path / "compactions") as compactions:
                for killed, next_one in (("first", "third"), ("second", "fourth"), ("third", "fifth")):
                    kill(group.processes[killed].pid)
                    group.join(next_one)
                    wait_until_all_is_written()
                group.wait_until(lambda: {0, -signal.SIGKILL} <= {*compactions.codes}, 120)
            assert {*compactions.codes} <= {0, -signal.SIGKILL}, compactions.log.read_text()[-3000:]
        wait_until_all_is_written()
        assert [end(group.processes[name]) for name in ("fourth", "fifth")] == [0, 0]
        before = tables.files()
        assert compactions.once() == 0

        assert tables.files() == 2 < before
        assert Counter(number for _, number in target.rows()) == Counter(group.sent)
        assert sum(tables.countries().values()) == len(group.sent)
        assert set(tables.countries()) == {"NO", "SE"}
