"""MissingShards: a listing that lacks a shard is not enough to take it as expired (S2, S5)."""

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.shards.discovery import LISTINGS_UNTIL_EXPIRED, MissingShards
from recordpublisher.testing.virtual_time import run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, read


class Source:
    """Finds the shards `existing`; counts what it is asked."""

    def __init__(self, *existing):
        self.existing, self.asked = set(existing), []

    async def exists(self, shard):
        self.asked.append(shard.key)
        return shard.key in self.existing


def after_listings(missing, *listings, streams=("s",)):
    async def check():
        for lacking in listings:
            await missing.check(set(lacking), streams)

    run_virtual(check())
    return missing


def test_a_shard_that_the_service_finds_has_not_expired_however_often_it_is_missing():
    missing = after_listings(MissingShards(Source("s/a").exists), *[["s/a"]] * 10)

    assert not missing.is_expired("s/a")


def test_a_shard_that_the_service_does_not_find_has_expired_and_is_asked_about_once():
    source = Source()
    missing = after_listings(MissingShards(source.exists), *[["s/a"]] * 3)

    assert missing.is_expired("s/a")
    assert source.asked == ["s/a"]


def test_where_the_source_does_not_tell_several_listings_in_a_row_decide():
    missing = after_listings(MissingShards(), *[["s/a"]] * (LISTINGS_UNTIL_EXPIRED - 1))
    assert not missing.is_expired("s/a")

    assert after_listings(missing, ["s/a"]).is_expired("s/a")


def test_a_listing_that_has_the_shard_starts_the_count_again():
    times = LISTINGS_UNTIL_EXPIRED - 1
    missing = after_listings(MissingShards(), *[["s/a"]] * times, [], *[["s/a"]] * times)

    assert not missing.is_expired("s/a")


def test_a_shard_that_is_no_longer_missing_is_forgotten():
    missing = after_listings(MissingShards(Source().exists), ["s/a"], [])

    assert not missing.is_expired("s/a")


def test_a_listing_of_another_stream_changes_nothing():
    missing = after_listings(MissingShards(Source().exists), ["s/a"])

    assert after_listings(missing, [], streams=("t",)).is_expired("s/a")


def test_s5_a_snapshot_does_not_get_back_the_states_of_shards_that_are_past_retention():
    """Otherwise the positions of a job that reshards and is restarted would grow for ever."""

    async def job():
        source, often = ScriptedSource(), {"flink.shard.discovery.intervalmillis": 1_000}
        source.add("a", 1)
        source.split("a", "b")
        fetcher, _ = await read(source, RecordingSink())
        stored = fetcher.snapshot()
        del source.shards["s/a"]
        fetcher, _ = await read(source, RecordingSink(), Bounds(max_time=5), often, restore=[stored])
        return stored["shards"].keys(), fetcher.snapshot()["shards"].keys()

    assert run_virtual(job()) == ({"s/a", "s/b"}, {"s/b"})
