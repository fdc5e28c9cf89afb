"""The program of docs/migrate/from-async-kinesis.md turns rows of async-kinesis into a file that a job goes on from."""

import asyncio
import json
import subprocess
import sys

import recordpublisher as rp
from recordpublisher.plugins.positions.file_import import FileTransfer
from recordpublisher.plugins.positions.job_positions import JobPositions
from recordpublisher.publishers.kinesis import KinesisClient

from processes.command_line import ROOT
from processes.documentation_page import blocks

NULL = {"NULL": True}
SHARDS = ["shardId-000000000000", "shardId-000000000001"]


def row(shard_id, sequence):
    """As version 3.0.1 writes it to DynamoDB, of a consumer that was closed."""
    return {"shard_id": {"S": shard_id}, "ref": NULL, "ts": NULL, "sequence": sequence, "ttl": {"N": "1795516407"}}


def put(kinesis, stream, shard_id, number):
    """Puts a record into a shard; its sequence number."""
    key = str(SHARDS.index(shard_id) * 2**127)
    response = kinesis.put_record(StreamName=stream, Data=str(number), PartitionKey="k", ExplicitHashKey=key)
    assert response["ShardId"] == shard_id
    return response["SequenceNumber"]


def positions_of(rows, stream):
    """What the page's program prints."""
    page = ROOT / "docs/migrate/from-async-kinesis.md"
    (program,) = [block.text for block in blocks(page, {}) if block.file_name == "positions_of_async_kinesis.py"]
    command = [sys.executable, "-c", program, stream]
    return subprocess.run(command, input=json.dumps({"Items": rows}), capture_output=True, text=True, check=True).stdout


def test_a_job_reads_on_after_the_sequence_numbers_of_the_rows(kinesis, stream, job, tmp_path):
    numbers = [put(kinesis, stream, shard, number) for shard in SHARDS for number in range(5)]
    rows = [row(SHARDS[0], {"S": numbers[2]}), row(SHARDS[1], NULL)]
    file = tmp_path / "positions.jsonl"
    file.write_text(positions_of(rows, stream))

    async def read_on():
        positions, sink = JobPositions(job), rp.MemorySink()
        async with KinesisClient(job, [stream]) as service:
            transfer = FileTransfer(positions, file, service, [stream], job)
            await transfer.apply_import(await transfer.plan_import())
        await positions.close()
        async with rp.DataFetcher([stream], job, sink=sink) as fetcher:
            await fetcher.run_bounded(stop_at_tip=True, max_time=60)
        return sorted((record.shard_id, int(record.data)) for record in sink.records)

    expected = [(SHARDS[0], 3), (SHARDS[0], 4), *((SHARDS[1], number) for number in range(5))]
    assert asyncio.run(read_on()) == expected
