"""A stream into Delta and Iceberg while others commit to the tables, compact, evolve and expire them, and jobs are killed: each row once.

RECORDPUBLISHER_SECONDS, RECORDPUBLISHER_KILL_SECONDS: for how long, and how often the jobs are killed.
"""

import os
import random
import threading
import time
from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.schema import PrimitiveType
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.types import StringType

from recordpublisher.local import serve_in_thread

from processes.job_files import children_of, end, job_file
from processes.process_faults import FaultInjectedJob, kill

SECONDS = float(os.environ.get("RECORDPUBLISHER_SECONDS", "60"))
KILL_SECONDS = float(os.environ.get("RECORDPUBLISHER_KILL_SECONDS", "15" if SECONDS < 300 else "30"))
FOREIGN = b"foreign"
TABLE = "lake.orders"
MOST_COLUMNS = 8


class ForeignDelta:
    """Works on the table as other programs do."""

    def __init__(self, place):
        self._place = place

    def _table(self):
        return DeltaTable(self._place)

    def commit(self):
        rows = pa.Table.from_pylist([{"data": FOREIGN}], pa.schema([("data", pa.binary())]))
        write_deltalake(
            self._table(), rows, mode="append", schema_mode="merge"
        )  # never the first: that creates the table

    def compact(self):
        self._table().optimize.compact()

    def evolve(self):
        table = self._table()
        if len(table.schema().fields) < 10 + MOST_COLUMNS:
            table.alter.add_columns([Field(f"extra_{time.time_ns()}", PrimitiveType("string"))])

    def expire(self):
        table = self._table()
        table.create_checkpoint()
        table.cleanup_metadata()
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)

    def payloads(self):
        return self._table().to_pyarrow_table(columns=["data"])["data"].to_pylist()


class ForeignIceberg:
    """The same. pyiceberg has no compaction: all rows are written anew, unless somebody commits meanwhile."""

    def __init__(self, catalog):
        self._catalog = catalog

    def _table(self):
        table = load_catalog("default", **self._catalog).load_table(TABLE)
        table.metadata.properties["commit.retry.num-retries"] = "0"
        return table

    def commit(self):
        table = self._table()
        rows = {name: [None] for name in table.schema().as_arrow().names} | {"data": [FOREIGN]}
        table.append(pa.table(rows, table.schema().as_arrow()))

    def compact(self):
        table = self._table()
        table.overwrite(table.scan().to_arrow())

    def evolve(self):
        table = self._table()
        if len(table.schema().fields) < 10 + MOST_COLUMNS:
            with table.update_schema() as update:
                update.add_column(f"extra_{time.time_ns()}", StringType())

    def expire(self):
        self._table().maintenance.expire_snapshots().older_than(datetime.now(UTC).replace(tzinfo=None)).commit()

    def payloads(self):
        return self._table().scan(selected_fields=("data",)).to_arrow()["data"].to_pylist()


def meddle(foreign, chance, ended, done):
    """In a thread, until it is ended. One that others were faster than, or that finds no table yet, does nothing."""
    while not ended.wait(chance.uniform(0.2, 1.5)):
        work = chance.choice([foreign.commit, foreign.commit, foreign.compact, foreign.evolve, foreign.expire])
        name = f"{type(foreign).__name__}.{work.__name__}"
        try:
            work()
            done[name] += 1
        except (DeltaError, CommitFailedException, NoSuchTableError) as error:
            done[f"{name}: {type(error).__name__}"] += 1
        except Exception as error:  # SQLite is locked, a file was vacuumed while it was read
            done[f"{name}: {type(error).__name__} {str(error)[:60]}"] += 1


def strike(job, done):
    for pid in [job.process.pid, *children_of(job.process.pid)]:
        kill(pid)
    job.process.wait()
    job.start()
    done["kills"] += 1


@pytest.mark.sinks
@pytest.mark.timeout(SECONDS + 600)
def test_each_row_is_there_once(tmp_path):
    seed = int(os.environ.get("RECORDPUBLISHER_SEED", random.randrange(10**6)))
    chance, done, sent = random.Random(seed), Counter(), []
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    tables = {
        "delta": {"flink.sink": "delta", "flink.sink.delta.uri": f"{tmp_path}/table"},
        "iceberg": {
            "flink.sink": "iceberg",
            "flink.sink.iceberg.table": TABLE,
            "flink.state.uri": f"{tmp_path}/positions",
            **{f"flink.sink.iceberg.catalog.{name}": value for name, value in catalog.items()},
        },
    }
    foreign = [ForeignDelta(f"{tmp_path}/table"), ForeignIceberg(catalog)]
    with serve_in_thread(streams={"orders": 4}) as served:
        jobs, ended = [], threading.Event()
        for name, properties in tables.items():
            (tmp_path / name).mkdir()
            stream = {**served.endpoint.properties(), "flink.streams": "orders", "flink.stream.initpos": "TRIM_HORIZON"}
            times = {"flink.job.name": name, "flink.state.checkpoint.interval": 1000}
            path = job_file(tmp_path / name, {**stream, **times, **properties})
            jobs.append(FaultInjectedJob(path, (1, 2), random.Random(seed)))
        threads = [
            threading.Thread(target=meddle, args=(each, random.Random(f"{seed} {number}"), ended, done))
            for number, each in enumerate(foreign)
        ]
        try:
            try:
                for thread in threads:
                    thread.start()
                load(served, jobs, chance, done, sent)
            finally:
                ended.set()
                for thread in threads:
                    thread.join()
                print(f"seed {seed}: {len(sent)} records, {dict(sorted(done.items()))}")
            wait_for_rows(foreign, jobs, sent)
        finally:
            for job in jobs:
                end(job.process, seconds=60)
        for each in foreign:
            assert rows_of_job(each) == sorted(sent), "each record once"


def load(served, jobs, chance, done, sent):
    began = killed = time.monotonic()
    while time.monotonic() - began < SECONDS:
        records = [b"%d" % number for number in range(len(sent), len(sent) + 4)]
        served.stream("orders").put(*records)
        sent += records
        time.sleep(0.2)
        for job in jobs:
            job.keep_running()
        if time.monotonic() - killed > KILL_SECONDS * chance.uniform(0.7, 1.3):
            strike(chance.choice(jobs), done)
            strike(chance.choice(jobs), done)
            killed = time.monotonic()


def wait_for_rows(foreign, jobs, sent):
    deadline = time.monotonic() + 120
    while [len(rows_of_job(each)) for each in foreign] != [len(sent)] * len(foreign):
        counts = [len(rows_of_job(each)) for each in foreign]
        assert time.monotonic() < deadline, f"{counts} of {len(sent)} rows"
        for job in jobs:
            job.keep_running()
        time.sleep(1)


def rows_of_job(foreign):
    return sorted(each for each in foreign.payloads() if each != FOREIGN)
