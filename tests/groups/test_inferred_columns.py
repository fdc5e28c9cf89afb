"""Columns follow from the data in real processes that are killed, in a group and alone: each record is there once, complete (E1, S6)."""

import json
from collections import Counter
from pathlib import Path

import duckdb
import polars as pl
import pytest

from groups.exactly_once_sinks import delta, iceberg, parquet
from groups.load import SteadyLoad
from groups.worker_group import SHARDS, TIMES, files_of_job, worker_group
from processes.job_files import end
from processes.process_faults import kill

pytestmark = [pytest.mark.timeout(900), pytest.mark.kills]
INFER = {"flink.deserializer.schema": "INFER", "flink.sink.partitions": "country={address.country}"}
COUNTRIES = ["NO", "SE", None]
MANY = 200


def document(number):
    """An object with fields that earlier ones lack, at the top and inside another object."""
    age = number // 50
    address = {"country": COUNTRIES[number % 3], f"code{age}": number}
    return {"n": number, "address": address, f"field{age}": str(number), "price": number / 2}


def of_folder(target):
    files = [str(file) for file in files_of_job(Path(target.properties["flink.sink.parquet.path"]), ".parquet")]
    by_polars = pl.concat(
        [pl.scan_parquet(file, hive_partitioning=True) for file in files], how="diagonal_relaxed"
    ).collect()
    by_duckdb = duckdb.sql(f"SELECT * FROM read_parquet({files}, union_by_name=true)").to_arrow_table()
    rows = sorted(by_duckdb.to_pylist(), key=lambda row: row["n"])
    assert by_polars.sort("n").select(by_duckdb.column_names).to_dicts() == rows
    return rows


def of_delta(target):
    from deltalake import DeltaTable

    return DeltaTable(target.properties["flink.sink.delta.uri"]).to_pyarrow_table().to_pylist()


def of_iceberg(target):
    from pyiceberg.catalog import load_catalog

    prefix = "flink.sink.iceberg.catalog."
    catalog = {key.removeprefix(prefix): value for key, value in target.properties.items() if key.startswith(prefix)}
    return load_catalog("default", **catalog).load_table("lake.orders").scan().to_arrow().to_pylist()


KINDS = {"parquet": (parquet, of_folder), "delta": (delta, of_delta), "iceberg": (iceberg, of_iceberg)}


def without_nulls(row):
    return {name: value for name, value in row.items() if value is not None}


def kill_and_wait(process):
    """A process that is still in the list may be running, and a start alone would wait for it as for a rival."""
    kill(process.pid)
    process.wait()


@pytest.mark.parametrize("together", [2, 1], ids=["group", "alone"])
@pytest.mark.parametrize("kind", KINDS)
def test_workers_that_are_killed_while_fields_appear_lose_and_repeat_nothing(tmp_path, kind, together):
    opened, rows_of = KINDS[kind]
    with opened(tmp_path) as target, worker_group(tmp_path, SHARDS, {**target.properties, **TIMES, **INFER}) as group:
        group.payload = lambda number: json.dumps(document(number)).encode()

        def wait_until_all_is_written():
            sent = set(group.sent)
            group.wait_until(lambda: has_table(target) and sent <= {number for _, number in target.rows()}, 120)

        start = group.join if together > 1 else group.start
        names = ["first", "second", "third", "fourth", "fifth"][: together + 3]
        with SteadyLoad(group, SHARDS, 4):
            for name in names[:together]:
                start(name)
            wait_until_all_is_written()
            for killed, next_one in zip(names, names[together:], strict=False):
                kill_and_wait(group.processes[killed])
                start(next_one)
                wait_until_all_is_written()
            group.wait_until(lambda: len(group.sent) > MANY)
        wait_until_all_is_written()
        assert {end(group.processes[name]) for name in names[-together:]} == {0}
        assert Counter(number for _, number in target.rows()) == Counter(group.sent)
        rows = rows_of(target)

    found = {row["n"]: row for row in rows}
    assert len(rows) == len(found) == len(group.sent)
    names = {name for number in found for name in document(number)}
    for number, row in found.items():
        expected = document(number) | {"address": without_nulls(document(number)["address"])}
        shown = {name: value for name, value in row.items() if name in names}
        assert without_nulls(shown | {"address": without_nulls(row["address"])}) == expected
    assert len(found) > MANY, "several fields have appeared"


def has_table(target):
    try:
        target.rows()
    except Exception:
        return False
    return True
