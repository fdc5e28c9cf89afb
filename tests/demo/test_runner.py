"""The progress that the demo shows, and its checks of the output."""

import json

from recordpublisher.demo import runner as result_checks
from recordpublisher.demo.runner import DemoProgress, OutputRows, files_by_batch, lag_days, state_of

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


def rows(ids=(0, 1, 2), batch=(1, 1, 2), shards=("p", "p", "c"), times=(10, 20, 30)):
    return OutputRows(list(batch), list(ids), ["UA"] * 3, list(shards), [str(id_) for id_ in ids], list(times))


def passed(results):
    return [result.passed for result in results]


def test_complete_output_passes():
    assert passed(result_checks._nothing_lost_or_repeated(rows(), 3)) == [True, True, True]


def test_a_repeated_flight_is_a_duplicate_and_leaves_another_missing():
    assert passed(result_checks._nothing_lost_or_repeated(rows(ids=(0, 1, 1)), 3)) == [True, False, False]


def test_a_batch_that_spreads_too_far_is_found():
    assert result_checks._spread(rows(), allowed_ms=10).passed
    assert not result_checks._spread(rows(), allowed_ms=9).passed


def test_a_child_in_its_parents_last_batch_is_too_early():
    progress = DemoProgress(3)
    progress.shards = {"f/c": {"id": "c", "parents": ["p"]}, "f/p": {"id": "p"}}

    assert result_checks._children_after_parents(rows(), progress).passed
    assert not result_checks._children_after_parents(rows(batch=(1, 2, 2)), progress).passed


def test_a_watermark_that_falls_is_found():
    progress = DemoProgress(3)
    progress.global_watermarks = [("flights", 5), ("departures", 3), ("flights", 6)]
    assert result_checks._watermark_never_fell(progress).passed

    progress.global_watermarks.append(("flights", 4))
    assert not result_checks._watermark_never_fell(progress).passed


def log_entry(folder, name, *paths):
    lines = ["v1", *(json.dumps({"path": f"file://{path}", "action": "add"}) for path in paths)]
    (folder / name).write_text("\n".join(lines))


def test_a_compacted_entry_adds_only_the_files_of_its_own_batch(tmp_path):
    log_entry(tmp_path, "0", "/x/a.parquet")
    log_entry(tmp_path, "1", "/x/b%20b.parquet")
    log_entry(tmp_path, "2.compact", "/x/a.parquet", "/x/b%20b.parquet", "/x/c.parquet")
    log_entry(tmp_path, "3", "/x/d.parquet")
    (tmp_path / ".3.crc").write_bytes(b"\x00")

    assert files_by_batch(tmp_path) == {
        0: ["/x/a.parquet"],
        1: ["/x/b b.parquet"],
        2: ["/x/c.parquet"],
        3: ["/x/d.parquet"],
    }


def test_no_log_means_no_files(tmp_path):
    assert files_by_batch(tmp_path / "missing") == {}
