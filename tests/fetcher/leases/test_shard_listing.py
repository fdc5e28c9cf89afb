"""S2, S3: which listed shards are added to the lease table."""

from recordpublisher.fetcher.leases.documents.lease_table import Lease, LeaseTable
from recordpublisher.fetcher.leases.shard_listing import ListedChanges, ShardListing
from recordpublisher.fetcher.shards.missing_shards import MissingShards
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard

from fakes.shard_entries import StoppedClock

START = StartingPosition.at_timestamp(5)


class Stream:
    """Shards by id with their parents. What is in `hidden` exists and is not listed."""

    def __init__(self, **parents):
        self.parents = parents
        self.hidden = set()
        self.listings = 0
        self.clock = StoppedClock()
        self.listing = ShardListing(self._list, MissingShards(self._exists), START, self.clock, 10.0)

    async def _list(self):
        self.listings += 1
        return [Shard("t", each, tuple(parents)) for each, parents in self.parents.items() if each not in self.hidden]

    async def _exists(self, shard):
        return shard.shard_id in self.parents


def table(**leases):
    return LeaseTable(7, leases={f"t/{shard}": lease for shard, lease in leases.items()})


async def test_the_first_table_has_every_listed_shard_and_waits_for_listed_parents_only():
    first = await Stream(a=["expired"], b=["a"]).listing.first_table("me")
    assert (first.version, first.writer, first.start) == (1, "me", START)
    assert first.leases == {"t/a": Lease(is_first=True), "t/b": Lease(parents=("t/a",), is_first=True)}


async def test_a_new_shard_waits_for_its_parents():
    changes = await Stream(a=[], b=["a"]).listing.changes(table(a=Lease("x", 3)))
    assert changes == ListedChanges({"t/b": Lease(parents=("t/a",))}, set())


async def test_an_ancestor_of_a_shard_that_was_read_does_not_come_back():
    stream = Stream(a=[], b=["a"], c=["b"])
    assert not await stream.listing.changes(table(c=Lease("x", 3)))


async def test_a_listing_that_lacks_a_known_shard_adds_nothing():
    """It shows a, which was read and removed, and not yet its child b: a would be read again."""
    stream = Stream(a=[], b=["a"])
    stream.hidden = {"b"}
    assert not await stream.listing.changes(table(b=Lease("x", 3)))


async def test_nobody_waits_for_an_unknown_parent_that_has_expired():
    stream = Stream(b=["a", "late"], late=[])
    stream.hidden = {"late"}
    waiting = table(b=Lease(parents=("t/a", "t/late")))
    assert await stream.listing.changes(waiting) == ListedChanges({}, {"t/a"})


async def test_a_parent_that_is_listed_later_is_waited_for():
    stream = Stream(b=["late"], late=[])
    stream.hidden = {"late"}
    first = await stream.listing.first_table("me")
    assert not first.can_be_read("t/b")
    stream.hidden = set()
    assert (await stream.listing.changes(first)).found == {"t/late": Lease()}


async def test_shards_are_listed_once_in_an_interval():
    stream = Stream(a=[])
    for stream.clock.seconds in (0.0, 5.0, 9.9):
        await stream.listing.changes(table(a=Lease("x", 3)))
    assert stream.listings == 1
    stream.clock.seconds = 10.1
    await stream.listing.changes(table(a=Lease("x", 3)))
    assert stream.listings == 2
