"""W5: an ended shard holds the watermark until its children have readers, at most for the tracker timeout."""

import asyncio
import time

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.shards.shard_entry import ShardStage
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.shards.shard_table import ShardTable
from recordpublisher.fetcher.watermarks import EndedParentHold
from recordpublisher.testing.virtual_time import run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher
from fakes.shard_entries import START, Notices, StoppedClock, in_stage, shard


class Scene:
    """Shard `a` of this worker has just ended."""

    def __init__(self, is_endless=False, **more):
        self.clock, self.notices = StoppedClock(), Notices()
        self.table = ShardTable()
        self.table.set_listener(self.notices)
        self.ended_parents = EndedParentHold(self.table, False, 30_000, self.clock, lambda stream: is_endless)
        self.a = self.table.add(shard("a", **more), ShardState(START, watermark=50))
        in_stage(self.a, ShardStage.ENDED)
        self.notices.changed.clear()
        self.ended_parents.on_shard_ended(self.a)

    def holds(self):
        self.ended_parents.update()
        assert self.a.is_active == self.a.status.awaits_children
        return self.a.is_active


def test_a_parent_holds_until_each_of_its_children_is_read():
    scene = Scene()
    children = [scene.table.add(shard(name, "a"), ShardState(START)) for name in ("c", "d")]

    assert scene.holds()
    in_stage(children[0], ShardStage.READING)
    scene.notices.changed.clear()
    assert scene.holds()
    in_stage(children[1], ShardStage.READING)
    scene.notices.changed.clear()
    assert not scene.holds()
    assert scene.notices.changed == [scene.a]


def test_a_child_that_is_read_takes_over_at_once():
    scene = Scene()
    in_stage(scene.table.add(shard("c", "a"), ShardState(START)), ShardStage.READING)

    assert not scene.holds()


def test_a_parent_holds_at_most_for_the_tracker_timeout():
    scene = Scene()
    scene.table.add_listed([shard("c", "a")])
    assert scene.holds()
    scene.clock.seconds += 30

    assert not scene.holds()


def test_a_parent_that_waits_for_its_sibling_does_not_hold():  # W9 takes precedence
    scene = Scene()
    b = scene.table.add(shard("b"), ShardState(START))
    scene.table.add(shard("c", "a", "b"), ShardState(START))
    assert not scene.holds()
    in_stage(b, ShardStage.ENDED)

    assert scene.holds(), "now the child may start, and a parent must hold the watermark for it"


def test_a_parent_holds_while_its_children_were_not_listed_yet():
    scene = Scene()
    assert scene.holds()
    scene.ended_parents.on_listing("s", [scene.a.shard])
    assert scene.holds(), "the listing may have begun before the shard was closed"
    scene.ended_parents.on_listing("s", [scene.a.shard])

    assert not scene.holds()


def test_a_listing_that_shows_the_shard_closed_shows_its_children():
    scene = Scene()
    scene.ended_parents.on_listing("s", [shard("a", closed=True)])

    assert not scene.holds()


def test_a_shard_of_a_finite_source_has_no_children():
    assert not Scene(closed=True).holds()


def test_listings_without_children_do_not_release_a_shard_of_kinesis():  # they are older than the reshard
    scene = Scene(is_endless=True)
    for _ in range(3):
        scene.ended_parents.on_listing("s", [shard("a", closed=True)])

    assert scene.holds()
    scene.clock.seconds += 30
    assert not scene.holds(), "at most for the tracker timeout"


def test_ten_thousand_ended_shards_are_decided_over_in_linear_time():
    scene = Scene()
    parents = [scene.table.add(shard(f"p{n}"), ShardState(START)) for n in range(10_000)]
    scene.table.add_listed(shard(f"c{n}", f"p{n}") for n in range(10_000))
    before = time.process_time()
    for parent in parents:
        in_stage(parent, ShardStage.ENDED)
        scene.ended_parents.on_shard_ended(parent)
        scene.ended_parents.update_parents_of_children(parent.key)
    scene.ended_parents.update()

    assert all(parent.is_active for parent in parents)
    assert time.process_time() - before < 10, "it takes 0.6 s; with a look through all shards for each of them, minutes"


def test_the_end_of_one_parent_concerns_the_other_parent_of_its_child():  # W9
    scene = Scene()
    b = scene.table.add(shard("b"), ShardState(START, watermark=60))
    scene.table.add_listed([shard("c", "a", "b")])
    assert not scene.holds()

    in_stage(b, ShardStage.ENDED)
    scene.ended_parents.on_shard_ended(b)
    scene.ended_parents.update_parents_of_children("s/b")
    assert scene.a.is_active
    assert b.is_active


def test_a_removed_shard_does_not_hold():
    scene = Scene()
    scene.table.remove("s/a")
    scene.ended_parents.update()

    assert scene.notices.changed == []


def test_a_child_begins_at_its_parents_watermark():  # W5
    source, sink = ScriptedSource(), RecordingSink()
    source.add("a", *range(0, 1_000, 10))
    source.close_shard("a", source.add("b", parents=("a",)).shard)

    async def job():
        fetcher = make_fetcher(source, sink)
        await fetcher.open()
        await fetcher.run_bounded(Bounds(max_time=60))
        return fetcher.metrics()

    assert run_virtual(job())["shards"]["s/b"]["watermark"] == 990


def test_no_record_of_a_child_that_a_listing_shows_late_is_late():  # W5, W13
    source, sink = ScriptedSource(per_read=10), RecordingSink()
    source.add("a", *range(0, 1_000, 10))
    source.add("a-busy", *range(0, 100_000, 10))
    child = source.add("b", *range(1_000, 100_000, 1_000), parents=("a",))
    source.close_shard("a")
    source.unlisted.add("s/b")

    async def job():
        fetcher = make_fetcher(
            source, sink, {"flink.shard.discovery.intervalmillis": 2_000}, is_endless=lambda stream: True
        )
        await fetcher.open()
        asyncio.get_running_loop().call_later(15, source.unlisted.clear)
        await fetcher.run_bounded(Bounds(max_time=60))
        return fetcher.metrics()

    metrics = run_virtual(job())
    assert child.shard.parents == ("a",)
    assert sum(shard_id == "b" for shard_id, _ in sink.rows) == 99
    assert metrics["worker"]["lateAfterIdle"] == 0


def test_after_a_restart_a_child_begins_at_its_parents_watermark():  # W5, W6
    source, sinks = ScriptedSource(), (RecordingSink(), RecordingSink())
    source.add("a", *range(0, 1_000, 10))
    busy = source.add("a-busy", *range(0, 2_000, 10))

    async def job():
        first = make_fetcher(source, RecordingSink())
        await first.open()
        source.close_shard("a")
        await first.run_bounded(Bounds(max_records=300))
        source.close_shard("a", source.add("b", parents=("a",)).shard)
        busy.put(*range(2_000, 9_000, 10))
        second = make_fetcher(source, sinks[0], restore=(first.snapshot(),))
        await second.open()
        return second

    assert run_virtual(job())._dependencies.tracker.current() == 990
