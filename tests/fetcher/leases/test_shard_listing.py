"""S2, S3: which listed shards are added to the lease table."""

from recordpublisher.fetcher.leases.lease_table import Lease, LeaseTable, ShardEnd
from recordpublisher.fetcher.leases.shard_listing import ListedChanges, ShardListing
from recordpublisher.fetcher.shards.discovery import MissingShards
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import HashRange, Shard

from fakes.shard_entries import StoppedClock

START = StartingPosition.at_timestamp(5)


class Stream:
    """Shards by id with their parents. What is in `hidden` exists and is not listed."""

    def __init__(self, **parents):
        self.parents = parents
        self.shards = []
        self.hidden = set()
        self.listings = 0
        self.clock = StoppedClock()
        self.not_found = set()
        self.listing = ShardListing(
            self._list, MissingShards(self._exists), START, self.clock, 10.0, not_found=self.not_found
        )

    async def _list(self):
        self.listings += 1
        found = [Shard("t", each, tuple(parents)) for each, parents in self.parents.items() if each not in self.hidden]
        return found + self.shards

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


async def test_an_archived_ancestor_does_not_come_back_although_the_shards_between_are_not_archived():
    """The archive has 0 and 1 from before the archiving job was down. Since then 0 has become 2, and 2 has become 3: 2 is gone."""
    left, right = HashRange(0, 9), HashRange(10)
    stream = Stream()
    stream.shards = [
        Shard("t", "shardId-000000000000", hash_range=left, closed=True, is_unlisted=True),
        Shard("t", "shardId-000000000001", hash_range=right, closed=True, is_unlisted=True),
        Shard("t", "shardId-000000000003", ("shardId-000000000002",), left),
    ]
    changes = await stream.listing.changes(LeaseTable(7, leases={"t/shardId-000000000003": Lease("x", 3)}))
    assert changes.found.keys() == {"t/shardId-000000000001"}


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
    assert first.leases == {}
    stream.hidden = set()
    both = {"t/late": Lease(is_first=True), "t/b": Lease(parents=("t/late",), is_first=True)}
    assert (await stream.listing.changes(first)).found == both


async def test_a_listing_that_lacks_the_shards_between_adds_nothing():
    """It shows a, which was read and left the table, and the child of its children, which is read."""
    stream = Stream(a=[], b=["a"], c=["a"], d=["b", "c"])
    stream.hidden = {"b", "c"}
    assert not await stream.listing.changes(table(d=Lease("x", 3)))


async def test_an_old_listing_is_followed_by_another_one_at_once():
    stream = Stream(a=[], b=["a"])
    stream.hidden = {"a"}
    assert not await stream.listing.changes(table())
    stream.hidden = set()
    assert (await stream.listing.changes(table())).found.keys() == {"t/a", "t/b"}


async def test_an_old_listing_of_one_stream_is_none_of_another():
    stream = Stream(a=[], b=["a"])
    stream.hidden = {"a"}
    listed = stream.listing._list_shards
    stream.listing._list_shards = lambda: listed_with(listed, Shard("u", "z"))
    assert (await stream.listing.changes(table())).found == {"u/z": Lease(is_first=True)}


async def listed_with(list_shards, *shards):
    return [*await list_shards(), *shards]


async def test_the_children_of_a_shard_whose_end_named_none_are_those_that_are_listed():
    stream = Stream(a=[], b=["a"], c=[])
    ended = table(a=Lease(None, 3, ended=True), c=Lease(None, 3, ended=True))
    changes = await stream.listing.changes(ended)
    assert changes == ListedChanges({"t/b": Lease(parents=("t/a",))}, set(), {"t/a": ("t/b",)})


async def test_a_shard_whose_end_named_no_children_goes_when_it_has_expired():
    changes = await Stream(b=[]).listing.changes(table(a=Lease(None, 3, ended=True), b=Lease("x", 3)))
    assert changes == ListedChanges({}, {"t/a"})


async def test_a_shard_whose_unread_parent_has_expired_begins_after_the_ancestor_that_was_read():  # S5
    """The end of a named no children, its child b came and went while nobody ran, and c followed."""
    stream = Stream(c=["b"], d=[])
    known = {"a": Lease(None, 3, ended=True, seen_ms=700), "d": Lease("x", 3)}
    changes = await stream.listing.changes(table(**known))
    assert changes == ListedChanges({"t/c": Lease(seen_ms=700)}, {"t/a"})


async def test_a_child_that_is_listed_when_its_parent_has_left_the_table_was_there_then():  # S5
    """The listing at the end of a lacked c: a child of it that was read is in the table."""
    stream = Stream(a=[], b=["a"], c=["a"])
    changes = await stream.listing.changes(table(b=Lease("x", 3)))
    assert changes == ListedChanges({"t/c": Lease(seen_ms=stream.clock.now_ms())}, set())


async def test_a_child_waits_for_the_end_of_a_parent_that_has_expired_unread():
    """The owner of the parent counts the gap, and ends it: until then the watermark of the parent holds that of the group."""
    changes = await Stream(b=["a"], c=[]).listing.changes(table(a=Lease("x", 3), c=Lease("x", 3)))
    assert changes == ListedChanges({"t/b": Lease(parents=("t/a",))}, set())


async def test_the_leases_of_a_stream_that_does_not_exist_go_if_nobody_reads_it():
    """All its shards had ended, and their children were not listed yet. A later stream of its name has shards of the same ids."""
    stream = Stream()
    stream.not_found.add("t")
    changes = await stream.listing.changes(table(a=Lease(epoch=3, ended=True), b=Lease(parents=("t/a",))))
    assert set(changes.deleted) == {"t/a", "t/b"}
    assert changes


async def test_whoever_reads_a_stream_finds_out_that_it_was_deleted():
    stream = Stream()
    stream.not_found.add("t")
    assert not await stream.listing.changes(table(a=Lease(epoch=3, ended=True), b=Lease("x", 4)))


async def test_shards_are_listed_once_in_an_interval():
    stream = Stream(a=[])
    for stream.clock.seconds in (0.0, 5.0, 9.9):
        await stream.listing.changes(table(a=Lease("x", 3)))
    assert stream.listings == 1
    stream.clock.seconds = 10.1
    await stream.listing.changes(table(a=Lease("x", 3)))
    assert stream.listings == 2


async def test_the_end_of_a_shard_has_the_children_that_are_listed_if_it_names_none():  # W5
    stream = Stream(a=[], b=["a", "z"], c=["x"])
    ends = {"t/a": ShardEnd(5, {}, 7), "t/x": ShardEnd(5, {"t/y": ("t/x",)})}
    assert await stream.listing.with_children(ends) == {
        "t/a": ShardEnd(5, {"t/b": ("t/a", "t/z")}, 7),
        "t/x": ends["t/x"],
    }
    assert await stream.listing.with_children({"t/x": ends["t/x"]}) == {"t/x": ends["t/x"]}
    assert stream.listings == 1
