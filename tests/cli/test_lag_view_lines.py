"""The lines of `lag --watch`."""

from recordpublisher.cli.lag_view import table_lines, title_lines, tree_lines
from recordpublisher.plugins.lag.job_snapshot import CommitSnapshot, JobSnapshot, ShardSnapshot, WorkerSnapshot

NOON_MS = 1_700_049_600_000


def shard(name, **values):
    return ShardSnapshot(stream="orders", shard=name, **values)


def snapshot(*shards, **values):
    return JobSnapshot(time_ms=NOON_MS, shards=[*shards], **values)


def cells(line):
    return line.split("  ")


def test_a_shard_is_a_row():
    full = shard(
        "a",
        process=1,
        lag_ms=4_200,
        records_per_second=412.0,
        watermark=NOON_MS - 1_000,
        is_idle=False,
        is_held=True,
        loss_ms=36_000_000,
        alarm="it is unread",
    )
    head, row = table_lines(snapshot(full, global_watermark=NOON_MS - 5_000), None)

    assert head.split() == ["SHARD", "WORKER", "LAG", "RECORDS/S", "WATERMARK", "IDLE", "HELD", "LOST", "IN"]
    values = [cell.strip() for cell in row.split("  ") if cell]
    assert values == ["a", "1", "4.2 s", "412", "+4.0 s", "no", "yes", "10.0 h", "ALARM"]


def test_of_a_group_the_worker_that_has_each_shard_is_shown():
    head, first, second = table_lines(snapshot(shard("a", worker="w-1", lag_ms=1), shard("b")), None)

    assert head.split()[:2] == ["SHARD", "WORKER"]
    assert (first.split()[:2], second.split()[:2]) == (["a", "w-1"], ["b", "-"])


def test_what_is_not_known_is_a_dash():
    _, row = table_lines(snapshot(shard("a")), None)

    assert row.split() == ["a", "-", "-", "-", "-", "-", "-", "-"]


def test_the_worst_lag_comes_first():
    shards = [
        shard("none"),
        shard("small", lag_ms=5),
        shard("large", lag_ms=900),
        shard("alarm", lag_ms=1, alarm="it is unread"),
    ]
    _, *rows = table_lines(snapshot(*shards), None)

    assert [row.split()[0] for row in rows] == ["alarm", "large", "small", "none"]


def test_a_thousand_shards_fit_the_height():
    shards = [shard(f"s{number:04d}", lag_ms=number) for number in range(1_000)]
    lines = table_lines(snapshot(*shards), 20)

    assert len(lines) == 20
    assert [line.split()[0] for line in lines[1:19]] == [f"s{number:04d}" for number in range(999, 981, -1)]
    assert lines[19] == "982 more with less lag"


def test_shards_that_just_fit_are_all_shown():
    shards = [shard(f"s{number}", lag_ms=number) for number in range(4)]

    assert len(table_lines(snapshot(*shards), 5)) == 5
    assert table_lines(snapshot(*shards), 4)[-1] == "2 more with less lag"
    assert table_lines(snapshot(*shards), 0)[-1] == "3 more with less lag", "one shard is always shown"


def test_the_totals_are_one_line():
    shards = [
        shard("a", lag_ms=4_200, records_per_second=40.0, is_idle=False, is_held=True),
        shard("b", lag_ms=0, records_per_second=2.0, is_idle=True, is_held=False, alarm="it is unread", in_flight=9),
    ]
    first, second, third = title_lines(
        snapshot(*shards, global_watermark=NOON_MS - 3_000, alignment="They wait for b."), NOON_MS + 7_900, None, 200
    )

    assert first == (
        "2 shards, 1 idle, 1 held, 1 with an alarm, 9 records in flight, 42 records/s, at most 4.2 s behind, global watermark 3.0 s ago"
    )
    assert second == "They wait for b."
    assert third == "Read at 12:00:00 UTC, 7 s ago"


def test_workers_that_do_not_respond_are_named():
    workers = [WorkerSnapshot(number, number == 0, []) for number in range(3)]
    lines = title_lines(snapshot(shard("a"), workers=workers), NOON_MS, None, 200)

    assert lines[1] == "Shards of workers that do not respond are not shown: 1, 2"


def test_the_counts_of_all_workers_are_shown_with_the_titles_that_they_give_unless_they_are_0():
    workers = [
        WorkerSnapshot(0, counts={"skipped": 1_200, "dead letters": 0, "too old": 1}),
        WorkerSnapshot(1, counts={"skipped": 34, "dead letters": 0}),
        WorkerSnapshot(2),
    ]

    assert title_lines(snapshot(workers=workers), NOON_MS, None, 200)[1] == (
        "Since the start of each worker: skipped 1,234, too old 1"
    )
    assert len(title_lines(snapshot(workers=workers[2:]), NOON_MS, None, 200)) == 2


def test_old_values_say_since_when_and_why():
    lines = title_lines(snapshot(shard("a")), NOON_MS + 60_000, "the store cannot be reached", 200)

    assert lines == [
        "1 shard",
        "Read at 12:00:00 UTC, 60 s ago; the values are old because reading fails: the store cannot be reached",
    ]


def test_a_long_error_is_wrapped_and_cut():
    lines = title_lines(snapshot(), NOON_MS, "error " * 1_000, 80)

    assert max(map(len, lines)) <= 80
    assert len(lines) == 5
    assert lines[-1].endswith("[...]")


def test_each_reader_has_the_age_of_its_checkpoint():
    readers = [
        WorkerSnapshot(0, True, [], 2_400),
        WorkerSnapshot(1),
        WorkerSnapshot(checkpoint_age_ms=900, worker="w"),
    ]
    lines = title_lines(snapshot(shard("a"), workers=readers), NOON_MS, None, 120)

    assert "Since the last checkpoint: worker 0 2.4 s, w 900 ms" in lines
    assert not any("checkpoint" in line for line in title_lines(snapshot(shard("a")), NOON_MS, None, 120))


def test_each_reader_has_its_last_commit_and_what_waits_for_the_next():
    readers = [
        WorkerSnapshot(0, commit=CommitSnapshot(3, 1_234_567, 42_000, 1_001)),
        WorkerSnapshot(1, commit=CommitSnapshot(0, 0, None, 1)),
        WorkerSnapshot(worker="w", commit=CommitSnapshot(0, 0, 900, 0)),
    ]
    lines = title_lines(snapshot(shard("a"), workers=readers), NOON_MS, None, 200)

    assert (
        "Last commit: 0 42.0 s ago, 3 files, 1,234,567 bytes, 1,001 records wait; 1 none yet, 1 record waits; w 900 ms ago, 0 records wait"
    ) in lines


def test_splits_and_merges_are_a_tree():
    shards = [
        shard("0", parents=["gone"]),
        shard("1", parents=["0"]),
        shard("2", parents=["0"]),
        shard("3", parents=[]),
        shard("4", parents=["2", "3"]),
        shard("5"),
    ]
    assert tree_lines(snapshot(*shards)) == [
        "",
        "Splits and merges",
        "0",
        "├─ 1",
        "└─ 2",
        "3",
        "└─ 4  merged from 2 and 3",
    ]
    assert tree_lines(snapshot(shard("0", parents=[]), shard("5"))) == []
