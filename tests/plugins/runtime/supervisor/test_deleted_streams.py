"""A job whose streams were all deleted while it ran ends with an error, so that its supervisor starts it again."""

import pytest

import recordpublisher as rp
from recordpublisher.cli.execution import exit_code
from recordpublisher.plugins.runtime import shard_lister, supervisor

from fakes.memory_streams import PROPERTIES, MemoryFactory, install


async def test_a_job_whose_streams_were_deleted_fails(monkeypatch, caplog):
    install(monkeypatch, {"a": [b"1"]})
    monkeypatch.setattr(shard_lister, "DELETED_SECONDS", 0.1)
    monkeypatch.setattr(supervisor, "stop_on_signals", lambda drain: None)
    listed = MemoryFactory.discover
    listings = []

    async def discover(factory, stream):
        listings.append(stream)
        if len(listings) > 2:
            raise rp.StreamNotFoundError(stream)
        return await listed(factory, stream)

    monkeypatch.setattr(MemoryFactory, "discover", discover)
    properties = rp.Properties({**PROPERTIES, "flink.shard.discovery.intervalmillis": 20})
    fetcher = rp.DataFetcher("orders", properties, sink=rp.MemorySink())
    with pytest.raises(rp.StreamNotFoundError, match="stream 'orders' does not exist") as raised:
        await supervisor.run_fetcher(fetcher, lambda progress: None, [])

    assert exit_code(raised.value) == 1
    assert any(line.startswith("stream orders was deleted") for line in caplog.messages)
    assert "the run ends, because every stream of the job was deleted" in caplog.messages
