"""What the dead-letter sink writes of a letter is what a replay reads."""

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.pipeline.dead_letter_format import DeadLetter
from recordpublisher.fetcher.sink import Checkpoint, SinkContext
from recordpublisher.plugins.dead_letters.of_job import stored_letters_of
from recordpublisher.plugins.host.build_from_properties import build_dead_letter_sink
from recordpublisher.plugins.host.manager import load_registry
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shards import Shard

SHARD = Shard("orders", "shardId-000000000001")
LETTERS = [
    DeadLetter(SHARD, UserRecord(b'{"n": 1}', "1", 1_700_000_000.5, "key", "170141183460469231731687303715884105728", 2), "no 1"),
    DeadLetter(SHARD, UserRecord(b"\xff\x00", "2", 1_700_000_001.0, "key"), "bytes"),
    DeadLetter(SHARD, UserRecord(b"", "3", 1_700_000_002.0, None), ""),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "sql"])
async def test_a_letter_is_read_as_it_was_written(tmp_path, kind):
    place = (
        {"sql.uri": f"sqlite:///{tmp_path}/letters.db"} if kind == "sql" else {f"{kind}.path": f"{tmp_path}/letters"}
    )
    given = {f"flink.deadletter.{key}": value for key, value in {"sink": kind, **place}.items()}
    properties = rp.Properties({"flink.job.name": "shop", "flink.deserializer.error": "DEAD_LETTER", **given})
    sink = build_dead_letter_sink(load_registry(), properties)
    await sink.open(SinkContext(0, 1, ("orders",)))
    for letter in LETTERS:
        await sink.write(letter.batch())
    await sink.flush(Checkpoint({}))
    await sink.close()

    letters = stored_letters_of(properties)
    read = [letter async for chunk in letters.chunks(is_replay=False) for letter in chunk]
    await letters.close()

    assert [(letter.shard, letter.record, letter.reason) for letter in read] == [
        (letter.shard, letter.record, letter.reason) for letter in LETTERS
    ]
