"""What the demo's screen and verdict know of the shards."""

from recordpublisher.demo.display import lag_days, state_of
from recordpublisher.demo.progress import Story

QUARTER = "0-3fffffffffffffffffffffffffffffff"


def progress(shards, rows=10, **offset):
    offset = {"records": 5, "globalWatermark": 1_000, "shards": shards, **offset}
    return {"name": "flights", "sources": [{"endOffset": offset, "numInputRows": rows}]}


def entry(**more):
    return {"id": "shardId-0", "range": QUARTER, "at": {"watermark": 86_400_000}, "records": 5, **more}


def test_rows_are_those_of_all_batches_before_and_of_this_one():
    story = Story(15)

    story.hear_query(progress({"f/a": entry()}))

    assert story.rows == {"flights": 15}


def test_a_shard_that_the_offset_drops_has_ended():
    story = Story(15)
    story.hear_query(progress({"f/a": entry(head=5)}))
    story.hear_query(progress({"f/b": entry(parents=["shardId-0"])}))

    assert state_of(story.shards["f/a"]).plain == "ended"
    assert state_of(story.shards["f/b"]).plain == "reading"


def test_a_shard_is_behind_what_was_played_into_it():
    story = Story(15)
    story.hear_producer(
        {"sent": [1, 0, 0, 0], "reachedByQuarter": [3 * 86_400_000, 0, 0, 0], "elapsed": 1.0, "done": False}
    )
    story.hear_query(progress({"f/a": entry()}))

    assert lag_days(story, story.shards["f/a"]) == 2.0


def test_idle_shards_are_remembered():
    story = Story(15)
    story.hear_query(progress({"f/a": entry(idle=True)}))
    story.hear_query(progress({"f/a": entry()}))

    assert story.seen_idle == {"f/a"}
    assert not story.shards["f/a"]["idle"]
