"""ShardEndCheck: a shard that its publisher's own source still lists as open is not stored as ended."""

from dataclasses import replace

import pytest

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.publishers.errors import ConfigurationError, PluginError, RecordPublisherError, StreamNotFoundError
from recordpublisher.testing.virtual_time import EPOCH_MS, run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher


class OwnListing(ScriptedSource):
    """A plugin that lists its shards: those in `shown_closed` as closed. A listing raises what `failures` holds."""

    def __init__(self):
        super().__init__()
        self.shown_closed, self.failures, self.listings = set(), [], 0

    async def discover(self, stream):
        self.listings += 1
        if self.failures:
            raise self.failures.pop()
        return [replace(shard, closed=shard.shard_id in self.shown_closed) for shard in await self.list_shards(stream)]


def with_ended(*shard_ids):
    source = OwnListing()
    for shard_id in shard_ids:
        source.add(shard_id, EPOCH_MS, EPOCH_MS + 1)
        source.close_shard(shard_id)
    return source


def run(source, seconds=60):
    """Run for `seconds`, or until an error. Return the error, the ended shards and the rows."""
    sink = RecordingSink()

    async def job():
        fetcher, error = make_fetcher(source, sink), None
        await fetcher.open()
        try:
            await fetcher.run_bounded(Bounds(max_time=seconds))
        except RecordPublisherError as raised:
            error = raised
        states = fetcher.snapshot()["shards"]
        await fetcher.close()
        return error, {key for key, state in states.items() if state.get("ended")}

    return *run_virtual(job()), sink.rows


def test_a_publisher_that_ends_an_open_shard_ends_the_job_and_the_shard_is_not_stored_as_ended():
    error, ended, rows = run(with_ended("0"))

    assert isinstance(error, PluginError)
    assert str(error).startswith(
        "the publisher of OwnListing for s/0 returned COMPLETE, and OwnListing.discover still lists the shard as open"
    )
    assert "closed=True" in str(error)
    assert "instead of returning COMPLETE" in str(error)
    assert ended == set()
    assert len(rows) == 2


def test_a_shard_ends_that_a_later_listing_shows_as_closed():
    source = with_ended("0")
    listed = source.list_shards

    async def shows_it_in_time(stream):
        if source.listings == 3:
            source.shown_closed.add("0")
        return await listed(stream)

    source.list_shards = shows_it_in_time
    error, ended, _ = run(source)

    assert (error, ended, source.listings) == (None, {"s/0"}, 3)


def test_a_shard_ends_whose_children_are_listed():
    source = with_ended("0")
    source.add("1", EPOCH_MS + 2, parents=("0",))
    error, ended, rows = run(source)

    assert (error, ended, source.listings) == (None, {"s/0"}, 1)
    assert ("1", EPOCH_MS + 2) in rows


def test_a_shard_ends_that_is_no_longer_listed():
    source = with_ended("0")
    source.add("1", EPOCH_MS)
    listed = source.list_shards

    async def without_it(stream):
        return [shard for shard in await listed(stream) if not source.listings or shard.shard_id != "0"]

    source.list_shards = without_it
    error, ended, _ = run(source)

    assert (error, ended) == (None, {"s/0"})


def test_no_listing_is_made_for_children_in_the_last_batch_or_for_a_service_that_reports_the_end():
    named, reported = OwnListing(), with_ended("0")
    named.add("0", EPOCH_MS)
    named.split("0", "1", "2")
    reported.ends_open_shards = True
    reported.add("1", EPOCH_MS)
    for source in (named, reported):
        assert run(source)[:2] == (None, {"s/0"})
        assert source.listings == 0


def test_listings_that_fail_are_repeated_and_prove_nothing(caplog):
    source = with_ended("0")
    source.shown_closed = {"0"}
    source.failures = [RecordPublisherError("no answer")] * 4
    source.add("1", EPOCH_MS)
    error, ended, _ = run(source)

    assert (error, ended, source.listings) == (None, {"s/0"}, 5)
    lines = [line for line in caplog.messages if "must confirm this failed" in line]
    assert len(lines) == 4
    assert lines[0].startswith("s/0 was read to its end")
    assert lines[0].endswith("no answer")


@pytest.mark.parametrize("count", [2, 200])
def test_shards_that_end_together_share_their_listings(count):
    names = [f"{number:03}" for number in range(count)]
    source = with_ended(*names)
    source.shown_closed = set(names)
    source.add("open", EPOCH_MS)
    error, ended, _ = run(source)

    assert (error, len(ended)) == (None, count)
    assert source.listings <= 2


class Missing(OwnListing):
    """Its listings say that the stream does not exist, `times` times."""

    def __init__(self, times):
        super().__init__()
        self.times = times

    async def discover(self, stream):
        if self.listings < self.times:
            self.listings += 1
            raise StreamNotFoundError(stream)
        return await super().discover(stream)


@pytest.mark.parametrize(("times", "ended"), [(3, {"s/0"}), (1_000, set())])
def test_a_stream_whose_listing_does_not_find_it_for_a_minute_was_deleted(times, ended, caplog):
    source = Missing(times)
    source.add("0", EPOCH_MS, EPOCH_MS + 1)
    source.close_shard("0")
    source.shown_closed = {"0"}
    error, found, rows = run(source, seconds=200)

    assert (error, found) == (None, ended)
    assert len(rows) == 2
    assert ("the run ends, because every stream of the job was deleted" in caplog.messages) is (times == 1_000)


@pytest.mark.parametrize("result", [7, ConfigurationError("a.b", 1, "2")])
def test_a_listing_of_a_plugin_that_is_wrong_ends_the_job_and_not_the_shard(result):
    class Wrong(OwnListing):
        async def discover(self, stream):
            if isinstance(result, Exception):
                raise result
            return result

    source = Wrong()
    source.add("0", EPOCH_MS)
    source.close_shard("0")
    error, ended, _ = run(source)

    assert isinstance(error, ConfigurationError if isinstance(result, Exception) else PluginError)
    assert ended == set()
