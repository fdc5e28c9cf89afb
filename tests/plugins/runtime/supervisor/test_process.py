"""`run_process`: what it adds to what its fetcher says."""

import asyncio
import gc
from types import SimpleNamespace

import pytest

import recordpublisher as rp
from recordpublisher.plugins.runtime import supervisor as process


class Replaced:
    """A fetcher of which a newer start has taken the state."""

    streams = ("orders",)

    def __init__(self, streams, properties):
        self.properties = properties

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        pass

    async def run_bounded(self, **bounds):
        raise rp.FencedError("worker a was replaced")


async def test_a_job_that_another_start_replaced_is_named_with_what_to_do(monkeypatch):
    monkeypatch.setattr(process, "DataFetcher", Replaced)
    monkeypatch.setattr(process, "stop_on_signals", lambda drain: None)
    properties = rp.Properties({"flink.streams": "orders", "flink.sink": "memory"})

    with pytest.raises(rp.FencedError) as raised:
        await process.run_process(properties, report=lambda progress: None)
    (note,) = raised.value.__notes__
    assert note == (
        "if that was another job, give it another flink.state.uri, or if the sink keeps the positions, another folder or table of the "
        "sink (or, in a database, another flink.job.name); --group lets processes share the shards"
    )


async def test_what_a_job_has_imported_is_excluded_from_garbage_collection(monkeypatch):
    reported = asyncio.Event()

    class Reading(Replaced):
        def progress(self):
            return None

        async def run_bounded(self, **bounds):
            await reported.wait()
            return SimpleNamespace(reason=SimpleNamespace(name="STOPPED"), records=0)

    gc.unfreeze()
    monkeypatch.setattr(process, "DataFetcher", Reading)
    monkeypatch.setattr(process, "stop_on_signals", lambda drain: None)
    monkeypatch.setattr(process, "_REPORT_SECONDS", 0)
    properties = rp.Properties({"flink.streams": "orders", "flink.sink": "memory"})
    await process.run_process(properties, report=lambda progress: reported.set())

    assert gc.get_freeze_count() > 10_000
    gc.unfreeze()
