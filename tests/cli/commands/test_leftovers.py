"""`recordpublisher leftovers`: what is staged and in no entry is listed, and removed; what an entry names stays, and is published later."""

import asyncio
import os
import re
import time

import boto3
import pytest
from deltalake import DeltaTable

import recordpublisher as rp
from recordpublisher.plugins.host.build_from_properties import build_sink
from recordpublisher.plugins.host.plugin_loading import load_registry

from fakes.batches import batch
from fakes.commits.committing_sink import Start, snapshot_at
from processes.command_line import json_results
from processes.job_files import job_file
from servers.moto_server import KEYS, serve_moto

STATE = snapshot_at(1)
ACCESS = {"region_name": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "s"}
PART = b"x" * 1000


@pytest.fixture(scope="module")
def moto():
    with serve_moto() as url:
        yield url


def local(name):
    def given(folder, _):
        return {"flink.sink": name, f"flink.sink.{name}.{'uri' if name == 'delta' else 'path'}": f"{folder}/out"}

    return given


def on_s3(name):
    def given(folder, url):
        place = f"s3://bucket/{folder.name}"
        here = {"flink.sink": name, f"flink.sink.{name}.{'uri' if name == 'delta' else 'path'}": place}
        return {**here, "flink.state.endpoint": url, "aws.region": "us-east-1", **KEYS}

    return given


def iceberg(folder, _):
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
    given = {f"flink.sink.iceberg.catalog.{name}": value for name, value in catalog.items()}
    return {**given, "flink.sink": "iceberg", "flink.sink.iceberg.table": "lake.orders"}


JOBS = {
    "parquet": local("parquet"),
    "delta": local("delta"),
    "iceberg": iceberg,
    "jsonl on S3": on_s3("jsonl"),
    "delta on S3": on_s3("delta"),
}


def leftovers(path, *options):
    """Exit code, stdout and stderr of the command with each of these options, which are run one after the other."""
    return json_results("commands_in_one_process", [["leftovers", str(path), *each] for each in options])


ALL = ["--older-than", "0"]


def sink_of(given):
    return build_sink(load_registry(), rp.Properties(given))


async def killed_job(given):
    """One that died with a commit that is not published, and with something staged that is in no commit."""
    start = Start(sink_of(given), store=store_of(given))
    await start.open()
    await start.sink.write(batch(b"committed"))
    await start.alone.commit(STATE)
    await start.sink.write(batch(b"never", shard_id="shardId-1"))
    await start.alone._positions._commits.stage()
    await start.sink.close()
    await start.alone.close()


def store_of(given):
    from recordpublisher.plugins.stores.by_location import conditional_store_of

    uri = given.get("flink.state.uri")
    return None if uri is None else conditional_store_of(uri, "flink.state.uri", rp.Properties(given))


@pytest.mark.parametrize("name", JOBS)
def test_what_no_commit_names_is_listed_and_removed(name, tmp_path, moto):
    given = {**JOBS[name](tmp_path, moto), "flink.streams": "orders", "flink.job.name": "job"}
    if name == "iceberg":
        given["flink.state.uri"] = f"{tmp_path}/state"
    asyncio.run(killed_job(given))
    (_, young, _), (_, listed, _), (_, removed, _), (_, again, _) = leftovers(
        job_file(tmp_path, given), [], ALL, [*ALL, "--remove"], ALL
    )
    young, listed, removed, again = map(without_unpublished, (young, listed, removed, again))
    assert young == "0 leftovers, 0 bytes.\n", "a running job may still commit it"
    head, row, total = listed.splitlines()
    hidden, kind, size, *_, unit = row.split()
    assert (head.split(), kind) == (["NAME", "BYTES", "AGE"], "staged")
    assert unit in ("ms", "s")
    assert re.search(r"/[0-9a-f]{16}/", hidden)
    assert total == f"1 leftover, {size} bytes. --remove deletes them."
    assert hidden in removed
    assert removed.endswith(f"1 leftover, {size} bytes, removed.\n")
    assert again == "0 leftovers, 0 bytes.\n"
    assert asyncio.run(published(given)) == [], "what is committed stayed, and is published"


def without_unpublished(text):
    """Without the line that tells of the commit that is not published, which tables have."""
    return "".join(
        line for line in text.splitlines(keepends=True) if not line.startswith("Not published: 1 commit from ")
    )


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_commits_that_are_not_published_are_listed_and_taken_back(name, tmp_path):
    given = {**JOBS[name](tmp_path, None), "flink.streams": "orders", "flink.job.name": "job"}
    if name == "iceberg":
        given["flink.state.uri"] = f"{tmp_path}/state"
    asyncio.run(killed_job(given))
    (_, listed, _), (_, taken, _), (_, again, _) = leftovers(
        job_file(tmp_path, given), [], ["--take-back"], ["--take-back"]
    )
    assert re.search(r"Not published: 1 commit from number \d+ on of group/positions/[0-9a-f]{16}/0 in ", listed)
    assert listed.endswith("If it cannot, use --take-back.\n")
    assert taken.endswith("1 commit taken back.\n")
    assert again == "Nothing was taken back.\n"
    asyncio.run(published(given))
    rows = DeltaTable(f"{tmp_path}/out").to_pyarrow_table() if name == "delta" else iceberg_rows(given)
    assert rows.num_rows == 0


def iceberg_rows(given):
    from pyiceberg.catalog import load_catalog

    start = "flink.sink.iceberg.catalog."
    catalog = {key.removeprefix(start): value for key, value in given.items() if key.startswith(start)}
    return load_catalog("default", **catalog).load_table("lake.orders").scan().to_arrow()


async def published(given):
    """What the next start discards: nothing is left. It publishes what is committed, without an error for a missing file."""
    start = Start(sink_of(given), store=store_of(given))
    await start.open()
    left = await start.sink.leftovers(())
    await start.sink.close()
    await start.alone.close()
    return list(left)


@pytest.mark.parametrize("name", ["jsonl on S3", "delta on S3"])
def test_an_unfinished_upload_is_listed_with_its_bytes_and_ended(name, tmp_path, moto):
    given = {**JOBS[name](tmp_path, moto), "flink.streams": "orders", "flink.job.name": "job"}
    asyncio.run(killed_job(given))
    asyncio.run(published(given))
    client = boto3.client("s3", endpoint_url=moto, **ACCESS)
    folder = "data/job.0.a.1.b/2" if "delta" in name else ".recordpublisher/staged/job.0.a.1.b"
    key = f"{tmp_path.name}/{folder}/9"
    upload = client.create_multipart_upload(Bucket="bucket", Key=key)["UploadId"]
    client.upload_part(Bucket="bucket", Key=key, UploadId=upload, PartNumber=1, Body=PART)
    others = client.create_multipart_upload(Bucket="bucket", Key=f"elsewhere/{folder}/1")["UploadId"]

    (_, listed, _), (_, removed, _) = leftovers(job_file(tmp_path, given), ALL, [*ALL, "--remove"])
    assert listed.splitlines()[1].split()[:3] == [f"{folder}/9", "upload", "1000"]
    assert removed.endswith("1 leftover, 1000 bytes, removed.\n")
    found = client.list_multipart_uploads(Bucket="bucket")["Uploads"]
    assert [each["UploadId"] for each in found] == [others]
    client.abort_multipart_upload(Bucket="bucket", Key=f"elsewhere/{folder}/1", UploadId=others)
    client.close()


def test_what_is_older_than_a_day_is_listed_without_an_option(tmp_path):
    given = {**local("parquet")(tmp_path, None), "flink.streams": "orders", "flink.job.name": "job"}
    asyncio.run(killed_job(given))
    for file in (tmp_path / "out/.recordpublisher/staged").rglob("*-*"):
        os.utime(file, (time.time() - 90_000,) * 2)
    ((_, listed, _),) = leftovers(job_file(tmp_path, given), [])
    assert listed.splitlines()[1].split()[-2:] == ["1.0", "d"]


def test_a_sink_that_stages_nothing_leaves_nothing(tmp_path):
    given = {"flink.streams": "orders", "flink.sink": "reactive"}
    assert leftovers(job_file(tmp_path, given), []) == [[0, "0 leftovers, 0 bytes.\n", ""]]


def test_what_is_committed_is_in_the_table_afterwards(tmp_path):
    given = {**local("delta")(tmp_path, None), "flink.streams": "orders", "flink.job.name": "job"}
    asyncio.run(killed_job(given))
    leftovers(job_file(tmp_path, given), [*ALL, "--remove"])
    asyncio.run(published(given))
    assert DeltaTable(f"{tmp_path}/out").to_pyarrow_table()["data"].to_pylist() == [b"committed"]
