"""The demo's record of the shards' progress."""

from recordpublisher.demo.display import DemoProgress, lag_days, state_of

QUARTER = "0-3fffffffffffffffffffffffffffffff"


def progress(shards, rows=10, **offset):
    offset = {"records": 5, "globalWatermark": 1_000, "shards": shards, **offset}
    return {"name": "flights", "sources": [{"endOffset": offset, "numInputRows": rows}]}


def entry(**more):
    return {"id": "shardId-0", "range": QUARTER, "state": {"watermark": 86_400_000}, "records": 5, **more}


def test_rows_are_the_sum_of_all_batches_so_far():
    state = DemoProgress(15)

    state.add_query_progress(progress({"f/a": entry()}))

    assert state.rows == {"flights": 15}


def test_a_query_that_waits_and_reports_its_last_offset_again_keeps_its_rows():
    state = DemoProgress(15, all_sent=True, rows={"departures": 15})
    state.add_query_progress(progress({"f/a": entry()}))
    state.add_query_progress(progress({"f/a": entry()}, rows=0))

    assert state.is_complete


def test_a_shard_that_the_offset_drops_has_ended():
    state = DemoProgress(15)
    state.add_query_progress(progress({"f/a": entry(head=5)}))
    state.add_query_progress(progress({"f/b": entry(parents=["shardId-0"])}))

    assert state_of(state.shards["f/a"]).plain == "ended"
    assert state_of(state.shards["f/b"]).plain == "reading"


def test_the_lag_of_a_shard_is_to_the_last_record_sent_to_it():
    state = DemoProgress(15)
    state.add_producer_report(
        {"sent": [1, 0, 0, 0], "sentUpToByQuarter": [3 * 86_400_000, 0, 0, 0], "elapsed": 1.0, "done": False}
    )
    state.add_query_progress(progress({"f/a": entry()}))

    assert lag_days(state, state.shards["f/a"]) == 2.0


def test_idle_shards_are_remembered():
    state = DemoProgress(15)
    state.add_query_progress(progress({"f/a": entry(idle=True)}))
    state.add_query_progress(progress({"f/a": entry()}))

    assert state.seen_idle == {"f/a"}
    assert not state.shards["f/a"]["idle"]
