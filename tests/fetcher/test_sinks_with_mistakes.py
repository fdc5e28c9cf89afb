"""Mistakes of a sink that would lose or repeat records without a word are refused."""

import pytest

import recordpublisher as rp

from fakes.memory_streams import PROPERTIES, install


async def run(monkeypatch, sink):
    install(monkeypatch, {"a": [b"%d" % number for number in range(40)]})
    async with rp.DataFetcher("orders", PROPERTIES, sink=sink) as fetcher:
        await fetcher.run_bounded(stop_at_tip=True, max_time=30)


class ForgetsToReturn(rp.Sink):
    """Stores the state of each checkpoint, and does not return it from `open`."""

    stored = None

    async def stored_positions(self):
        return [] if self.stored is None else [self.stored]

    async def write(self, batch):
        pass

    async def flush(self, checkpoint=None):
        self.stored = checkpoint.state


async def test_a_sink_whose_open_does_not_return_the_stored_state_is_refused_at_its_second_start(monkeypatch):
    sink = ForgetsToReturn()
    await run(monkeypatch, sink)
    with pytest.raises(
        rp.PluginError, match=r"`ForgetsToReturn.open` returned None although .*: return the same state"
    ):
        await run(monkeypatch, sink)


class Rejects(rp.Sink):
    """Rejects what a function makes of a batch."""

    def __init__(self, rejected, reason="bad"):
        self.rejected, self.reason = rejected, reason

    async def open(self, context):
        self.context = context

    async def write(self, batch):
        await self.context.reject(self.rejected(batch), self.reason)


@pytest.mark.parametrize(
    "rejected", [lambda batch: next(iter(batch)), lambda batch: batch, lambda batch: batch.records[0]]
)
async def test_what_is_rejected_is_one_record_as_a_batch(monkeypatch, rejected):
    with pytest.raises(rp.PluginError, match="reject one record as a batch"):
        await run(monkeypatch, Rejects(rejected))


async def test_a_rejected_record_has_a_reason(monkeypatch):
    with pytest.raises(rp.PluginError, match="with the reason None: give a text"):
        await run(monkeypatch, Rejects(lambda batch: batch.slice(0, 1), None))


@pytest.mark.parametrize("counter", ["reads", "tooOld", None])
async def test_a_sink_counts_only_in_counters_that_outlast_their_shard(monkeypatch, counter):
    class Counts(Rejects):
        async def write(self, batch):
            self.context.count(batch.shard.key, counter)

    with pytest.raises(
        rp.PluginError, match=f"a sink has counted a record in the counter {counter!r}. Valid values: skipped_records, "
    ):
        await run(monkeypatch, Counts(None))
