"""Jobs that read compressed payloads: values, event times, memory, and records that cannot be decompressed (S7)."""

import gzip
import json

import pytest

import recordpublisher as rp

from fakes.memory_streams import PROPERTIES, install

GOOD = [gzip.compress(b'{"at": %d}' % at) for at in (5, 7, 9)]
LARGE = gzip.compress(b" " * 1_001)
GIVEN = {
    **PROPERTIES,
    "flink.deserializer": "json",
    "flink.deserializer.compression": "gzip",
    "flink.deserializer.decompressed.max.bytes": "1000",
    "flink.watermark.timestamp.field": "at",
    "flink.job.name": "job",
}


async def records_of(monkeypatch, *payloads, **more):
    install(monkeypatch, {"a": list(payloads)}, closed=True)
    sink = rp.MemorySink()
    async with rp.DataFetcher(["orders"], {**GIVEN, **more}, sink=sink) as fetcher:
        await fetcher.run()
    return sink.records


async def test_values_event_times_and_data_come_from_the_decompressed_payload(monkeypatch):
    records = await records_of(monkeypatch, *GOOD)

    assert [record.value for record in records] == [{"at": 5}, {"at": 7}, {"at": 9}]
    assert [record.event_time for record in records] == [5, 7, 9]
    assert records[0].data == b'{"at": 5}'


async def test_a_payload_that_is_too_large_fails_the_job_with_its_record_and_limit(monkeypatch):
    with pytest.raises(rp.DeserializationError, match=r"record 1 of orders/a.*at most 1000 bytes"):
        await records_of(monkeypatch, GOOD[0], LARGE)


async def test_a_dead_letter_keeps_the_compressed_payload(monkeypatch, tmp_path):
    letters = {"flink.deadletter.sink": "jsonl", "flink.deadletter.jsonl.path": str(tmp_path)}
    records = await records_of(
        monkeypatch, GOOD[0], b"plain", GOOD[1], **letters, **{"flink.deserializer.error": "DEAD_LETTER"}
    )

    (letter,) = [json.loads(line) for path in tmp_path.rglob("*.jsonl") for line in path.read_text().splitlines()]
    assert [record.event_time for record in records] == [5, 7]
    assert letter["value"]["payload"] == "plain"
    assert "flink.deserializer.compression=GZIP" in letter["value"]["error"]
