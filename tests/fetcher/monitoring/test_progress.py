"""The progress of a worker says the same as its metrics."""

from types import SimpleNamespace

import msgspec

from recordpublisher.fetcher.monitoring.worker_view import WorkerProgress, progress_of
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.shards.shard_entry import ShardStage
from recordpublisher.fetcher.sink import Unfinished
from recordpublisher.testing.virtual_time import EPOCH_MS, run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher
from fakes.shard_entries import entry


def progress_and_metrics(source):
    """Before and after a run of one virtual second."""

    async def run():
        fetcher = make_fetcher(source, RecordingSink())
        await fetcher.open()
        before = fetcher.progress()
        await fetcher.run_bounded(Bounds(max_time=1.0))
        found = before, fetcher.progress(), fetcher.metrics()
        await fetcher.close()
        return found

    return run_virtual(run())


def test_the_progress_is_the_sum_of_the_metrics():
    source = ScriptedSource()
    source.add("a", *range(EPOCH_MS, EPOCH_MS + 5))
    source.add("b", EPOCH_MS)
    _, progress, metrics = progress_and_metrics(source)

    shards, own = metrics["shards"].values(), metrics["worker"]
    assert progress == WorkerProgress(
        process=0,
        records=6,
        open_shards=own["openShards"],
        idle_shards=own["idleShards"],
        held_shards=own["heldShards"],
        skipped=sum(shard["skippedRecords"] for shard in shards),
        dead_letters=sum(shard["deadLetters"] for shard in shards),
        lag_ms=max(shard["lagMs"] for shard in shards),
    )


def test_the_lag_is_not_known_before_the_first_read():
    source = ScriptedSource()
    source.add("a", EPOCH_MS)
    before, after, _ = progress_and_metrics(source)

    assert (before.lag_ms, after.lag_ms) == (None, 0)


class Shards(list):
    def total(self, counter):
        return sum(getattr(each.metrics, counter) for each in self)


def test_each_shard_counts():
    idle, held, ended = entry("a"), entry("b"), entry("c", stage=ShardStage.ENDED)
    idle.reading.is_idle, held.status.held_since = True, 1.0
    held.metrics.millis_behind_latest, held.reading.last_read_ms = 40, 1_000
    table = Shards([idle, held, ended])
    held.metrics.skipped_records, ended.metrics.dead_letters = 3, 4
    view = SimpleNamespace(table=table, records_read=7)

    expected = WorkerProgress(
        0, 7, open_shards=2, idle_shards=1, held_shards=1, skipped=3, dead_letters=4, lag_ms=540, unfinished=5
    )
    assert progress_of(view, Unfinished(5, "words"), now_ms=1_500) == expected


def test_progress_is_sent_as_json():
    progress = WorkerProgress(0, 7, 2, 1, 0, 1, 2, 40)

    assert msgspec.json.decode(msgspec.json.encode(progress), type=WorkerProgress) == progress
