"""Tables that others change: what no longer fits is refused before a commit, and a commit that cannot be published is taken back."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TypedDict

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

import recordpublisher as rp
from recordpublisher.fetcher.checkpoints.snapshot_format import PARTS_PREFIX, checked_snapshot
from recordpublisher.fetcher.leases.group_store import GroupStore, store_as_group
from recordpublisher.fetcher.leases.position_documents import PositionPart
from recordpublisher.fetcher.leases.worker_sealing import seal_parts, seal_worker
from recordpublisher.plugins.positions.sink_leftovers import UnpublishedCommits, take_back_commits
from recordpublisher.plugins.sinks.tables.delta import DeltaLakeTable
from recordpublisher.plugins.sinks.tables.table_folder import TableFolder

from .lake_tables import Delta, Iceberg, number, opened
from fakes.batches import batch
from fakes.commits.committing_sink import Start, snapshot_at
from fakes.memory_store import MemoryStore


@dataclass
class Order:
    n: int | None


@pytest.fixture(params=[Delta, Iceberg])
def kind(request, tmp_path):
    return request.param(tmp_path)


async def refusal_of_a_stage(kind, change, **more):
    """What a running job is told at the stage after the change; nothing is staged then."""
    sink = await opened(kind, context=rp.SinkContext(value_type=Order), **more)
    await sink.write(batch(b"x").with_columns(values=[Order(1)]))
    await sink.publish([await sink.stage(number(1))])
    change()
    await sink.write(batch(b"x").with_columns(values=[Order(2)]))
    with pytest.raises(rp.ConfigurationError) as raised:
        await sink.stage(number(2))
    await sink.close()
    return str(raised.value)


def rewritten(kind, change):
    """A new version of the log that has these actions of the first one, changed."""
    log = kind.data / "_delta_log"
    first = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    actions = [action for action in first if "protocol" in action or "metaData" in action]
    for action in actions:
        change(action)
    version = DeltaTable(str(kind.data)).version() + 1
    (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)) + "\n")


def with_feature(name):
    def change(action):
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [name]}
            if name == "typeWidening":  # readers must know it, too
                action["protocol"] |= {"minReaderVersion": 3, "readerFeatures": [name]}

    return change


def with_schema(edit, **configuration):
    def change(action):
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            edit(schema["fields"])
            action["metaData"]["schemaString"] = json.dumps(schema)
            action["metaData"]["configuration"] |= configuration

    return change


@pytest.mark.parametrize(
    "feature", ["rowTracking", "clustering", "inCommitTimestamp", "typeWidening", "identityColumns", "domainMetadata"]
)
async def test_a_feature_of_delta_that_the_sink_does_not_keep_is_named(tmp_path, feature):
    kind = Delta(tmp_path)
    told = await refusal_of_a_stage(kind, lambda: rewritten(kind, with_feature(feature)))
    assert f"features that this sink does not keep: {feature}. Drop them" in told
    assert "flink.sink.delta.uri" in told


async def test_a_constraint_is_refused_at_the_next_stage_and_at_the_start(tmp_path):
    kind = Delta(tmp_path)
    told = await refusal_of_a_stage(kind, lambda: DeltaTable(str(kind.data)).alter.add_constraint({"small": "n < 10"}))
    assert "CHECK constraints, which this sink does not check: small; drop them" in told
    with pytest.raises(rp.ConfigurationError, match="small"):
        await kind.sink().open(rp.SinkContext(value_type=Order))


def not_null(fields):
    fields[0]["nullable"] = False


def generated(fields):
    fields[0]["metadata"] = {"delta.generationExpression": "1 + 1"}


def renamed(fields):
    fields[0]["name"] = "m"


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (
            not_null,
            "'n' is NOT NULL, but rows may have no value for it; run ALTER TABLE ... ALTER COLUMN n DROP NOT NULL",
        ),
        (generated, "'n' has delta.generationExpression, which this sink does not keep"),
        (renamed, "has no column 'n'. Valid: EVOLVE"),
    ],
)
async def test_a_column_of_delta_that_others_change_is_named(tmp_path, edit, words):
    kind = Delta(tmp_path)
    assert words in await refusal_of_a_stage(kind, lambda: rewritten(kind, with_schema(edit)))


async def test_column_mapping_is_refused(tmp_path):
    kind = Delta(tmp_path)
    change = with_schema(lambda fields: None, **{"delta.columnMapping.mode": "name"})
    assert "column mapping" in await refusal_of_a_stage(kind, lambda: rewritten(kind, change))


def made_anew(kind):
    """Another table at the same place, with at least as many versions in its log as the one before."""
    shutil.rmtree(kind.data / "_delta_log")
    for n in range(4):
        write_deltalake(str(kind.data), pa.table({"m": [n]}), mode="append")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda kind: shutil.rmtree(kind.data), "the table was deleted while the job ran"),
        (made_anew, "has no column 'n'"),
    ],
)
async def test_a_table_of_delta_that_was_deleted_or_made_anew_is_noticed(tmp_path, change, words):
    """Into another table at the same place rows would come without the columns that it lacks: as nulls."""
    kind = Delta(tmp_path)
    assert words in await refusal_of_a_stage(kind, lambda: change(kind))


async def test_a_commit_is_not_published_into_a_table_of_delta_that_was_made_anew(tmp_path):
    kind = Delta(tmp_path)
    sink = await opened(kind, context=rp.SinkContext(value_type=Order))
    await sink.write(batch(b"x").with_columns(values=[Order(1)]))
    staged = await sink.stage(number(1))
    made_anew(kind)
    with pytest.raises(rp.StateError, match="cannot be published: the column 'n', which"):
        await sink.publish([staged])
    assert [row["m"] for row in kind.rows()] == [3, 2, 1, 0]
    await sink.close()


async def test_a_dropped_column_is_added_again_by_option(tmp_path):
    kind = Delta(tmp_path)
    sink = await opened(kind, context=rp.SinkContext(value_type=Order), **{"flink.sink.table.columns": "EVOLVE"})
    rewritten(kind, with_schema(renamed))
    await sink.write(batch(b"x").with_columns(values=[Order(2)]))
    await sink.publish([await sink.stage(number(2))])
    assert [row["n"] for row in kind.rows()] == [2]
    await sink.close()


async def test_a_field_that_differs_from_a_column_of_the_table_in_case_only_is_named(kind):
    """EVOLVE would add it: Delta refuses that, and readers of Iceberg that ignore case fail."""
    await (await opened(kind, context=rp.SinkContext(value_type=TypedDict("Row", {"id": str})))).close()
    evolve = {"flink.sink.table.columns": "EVOLVE"}
    with pytest.raises(rp.ConfigurationError, match=r"the field 'ID' differs from the column 'id' of .* in case only"):
        await opened(kind, context=rp.SinkContext(value_type=TypedDict("Row", {"ID": str})), **evolve)


def require(kind):
    with kind.table().update_schema(allow_incompatible_changes=True) as update:
        update.update_column("n", required=True)


def drop_column(kind):
    with kind.table().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("n")


def rename_column(kind):
    with kind.table().update_schema() as update:
        update.rename_column("n", "m")


def drop_table(kind):
    load_catalog("default", **kind.catalog).drop_table("lake.orders")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            require,
            "the column 'n' is required, but rows may have no value for it; run ALTER TABLE ... ALTER COLUMN n DROP NOT NULL",
        ),
        (drop_column, "has no column 'n'. Valid: EVOLVE"),
        (rename_column, "has no column 'n'. Valid: EVOLVE"),
        (drop_table, "the table was dropped while the job ran"),
    ],
)
async def test_a_table_of_iceberg_that_others_change_is_named(tmp_path, change, words):
    kind = Iceberg(tmp_path)
    assert words in await refusal_of_a_stage(kind, lambda: change(kind))


async def test_a_stage_without_rows_looks_at_nothing(kind, monkeypatch):
    sink = await opened(kind)
    monkeypatch.setattr(sink._table, "prepare_if_changed", None)
    assert await sink.stage(number(1)) is None
    await sink.close()


# --- taken back


class Job:
    """Starts of one job into a table; its store outlives them."""

    def __init__(self, kind):
        self.kind, self.store = kind, MemoryStore()

    async def start(self):
        sink = self.kind.sink()
        sink.entries = lambda: None
        start = Start(sink, rp.SinkContext(value_type=Order), self.store)
        self.states = await start.open()
        return start

    async def commit(self, start, n):
        await start.sink.write(batch(b"x").with_columns(values=[Order(n)]))
        await start.alone.settle()
        await start.alone.commit(snapshot_at(n))

    async def take_back(self, sink=None):
        """What the command does."""
        sink = sink or self.kind.sink()
        for name, part in (await self.parts()).items():
            if staged := await sink.unpublished(part.staged):
                await seal_worker(GroupStore(self.store), part.worker)
                await take_back_commits(UnpublishedCommits(sink, self.store, name, staged))

    async def seal(self):
        group = GroupStore(self.store)
        for part in (await self.parts()).values():
            await seal_parts(group, await seal_worker(group, part.worker))

    async def parts(self):
        """The parts that name something staged."""
        found = {
            name: PositionPart.from_bytes(each.value, name)
            for name, each in (await self.store.list(PARTS_PREFIX)).items()
        }
        return {name: part for name, part in found.items() if part.staged}

    def numbers(self):
        return sorted(row["n"] for row in self.kind.rows())


def break_table(kind):
    """Between the commit and its publication: returns how it is mended."""
    if kind.name == "delta":
        table = DeltaTable(str(kind.data))
        table.alter.add_constraint({"small": "n < 10"})
        return lambda: DeltaTable(str(kind.data)).alter.drop_constraint("small")
    require(kind)

    def mend():
        with kind.table().update_schema() as update:
            update.update_column("n", required=False)

    return mend


@pytest.fixture
async def refused(kind):
    """A job with one commit that is published, and one that the table no longer takes; and how the table is mended."""
    job = Job(kind)
    start = await job.start()
    await job.commit(start, 1)
    await start.alone.publish()
    await job.commit(start, 2)
    return job, start, break_table(kind)


async def test_the_error_names_the_command_and_nothing_is_printed(refused, capsys):
    """pyiceberg prints a table of all columns, to stdout, when its own check finds the difference."""
    _, start, _ = refused
    with pytest.raises(
        rp.StateError, match=r"committed and cannot be published: .*recordpublisher leftovers .* --take-back"
    ):
        await start.alone.publish()
    assert capsys.readouterr().out == ""


async def test_the_positions_from_before_are_returned_and_the_rows_are_read_again(refused):
    job, _, mend = refused
    await job.take_back()
    mend()

    start = await job.start()

    assert job.states == [snapshot_at(1)]
    await job.commit(start, 2)
    await start.alone.publish()
    assert job.numbers() == [1, 2]
    await start.sink.close()


async def test_a_process_that_publishes_later_is_refused_by_the_table(refused):
    job, zombie, mend = refused
    await job.take_back()
    mend()
    with pytest.raises(rp.FencedError):
        await zombie.alone.publish()
    assert job.numbers() == [1]


async def test_a_reset_of_the_positions_stays(refused):
    """It came after the commit that is taken back."""
    job, _, mend = refused
    group = GroupStore(job.store)
    found = await group.read_table()
    await seal_parts(group, await seal_worker(group, found.document.alone.worker))
    await store_as_group(
        job.store, {key: each.state for key, each in checked_snapshot(snapshot_at(7)).shards.items()}, found
    )
    await job.take_back()
    mend()
    await job.start()
    assert (job.states, job.numbers()) == ([snapshot_at(7)], [1])


async def test_a_process_that_publishes_later_adds_nothing_where_delta_has_dropped_its_number(tmp_path, monkeypatch):
    """As tables of others do soon, by their `delta.setTransactionRetentionDuration`."""
    job = Job(Delta(tmp_path))
    zombie = await job.start()
    await job.commit(zombie, 1)
    await job.take_back()
    monkeypatch.setattr(DeltaLakeTable, "last_number", lambda *_: 0)
    await zombie.alone.publish()
    assert job.numbers() == []
    with pytest.raises(rp.FencedError):
        await job.commit(zombie, 2)


async def test_a_command_that_dies_between_table_and_positions_is_run_again(refused, monkeypatch):
    job, _, mend = refused
    await job.seal()
    with monkeypatch.context() as patched:
        patched.setattr(MemoryStore, "compare_and_set", None)
        with pytest.raises(TypeError):
            await job.take_back()
    mend()
    with pytest.raises(
        rp.StateError, match=r"was taken back, but the positions are not set back yet: run `.*--take-back` again"
    ):
        await job.start()

    await job.take_back()

    await job.start()
    assert (job.states, job.numbers()) == ([snapshot_at(1)], [1])


async def test_a_table_that_was_dropped_is_told_and_made_again_by_the_next_start(tmp_path):
    kind = Iceberg(tmp_path)
    job = Job(kind)
    start = await job.start()
    await job.commit(start, 1)
    drop_table(kind)
    with pytest.raises(rp.StateError, match="there is no such table now"):
        await start.alone.publish()
    with pytest.raises(
        rp.StateError, match=r"lake.orders .*does not exist, so the job's unpublished commit cannot be taken back"
    ):
        await job.take_back()

    await job.start()

    assert (job.states, job.numbers()) == ([snapshot_at(1)], [1])


async def test_what_is_published_is_not_taken_back(kind):
    job = Job(kind)
    start = await job.start()
    await job.commit(start, 1)
    await start.alone.publish()
    await job.take_back()
    await job.start()
    assert (job.states, job.numbers()) == ([snapshot_at(1)], [1])


async def test_who_publishes_while_it_is_taken_back_wins_or_is_refused(refused):
    job, start, mend = refused
    mend()
    sink = job.kind.sink()
    commit = sink._table.commit

    def after_another(*given):
        sink._table.commit = commit
        publisher = job.kind.sink()
        publisher._publish_once(start.alone._positions._commits._writer, staged)
        commit(*given)

    (part,) = (await job.parts()).values()
    staged = part.staged[-1:]
    sink._table.commit = after_another

    await job.take_back(sink)

    await job.start()
    assert (job.states, job.numbers()) == ([snapshot_at(2)], [1, 2])


async def test_purged_files_are_read_again(kind):
    job = Job(kind)
    start = await job.start()
    await job.commit(start, 1)
    shutil.rmtree(next((kind.data / "data").iterdir()))
    with pytest.raises(rp.StateError, match=r"committed but missing.*--take-back"):
        await start.alone.publish()

    await job.take_back()

    start = await job.start()
    await job.commit(start, 1)
    await start.alone.publish()
    assert job.numbers() == [1]


async def test_rows_whose_mark_was_left_behind_stay_when_a_later_commit_is_taken_back(kind, monkeypatch):
    """The process ended between the commit in the table and the deletion of the mark."""
    job = Job(kind)
    start = await job.start()
    await job.commit(start, 1)
    with monkeypatch.context() as patched:
        patched.setattr(TableFolder, "delete", None)
        with pytest.raises(TypeError):
            await start.alone.publish()
    await job.commit(start, 2)
    mend = break_table(kind)
    await job.take_back()
    mend()
    await job.start()
    assert (job.states, job.numbers()) == ([snapshot_at(1)], [1])


async def test_values_of_a_column_that_was_dropped_after_the_commit_are_not_lost(tmp_path):
    kind = Delta(tmp_path)
    job = Job(kind)
    start = await job.start()
    await job.commit(start, 1)
    rewritten(kind, with_schema(renamed))
    with pytest.raises(rp.StateError, match=r"the column 'n', which is .*long.* in the records, no longer exists"):
        await start.alone.publish()


# --- marks


async def test_iceberg_keeps_the_numbers_of_few_starts(tmp_path):
    kind = Iceberg(tmp_path)
    job = Job(kind)
    for n in range(6):
        start = await job.start()
        await job.commit(start, n)
        await start.alone.publish()
        await start.sink.close()
    marks = [name for name in kind.table().properties if name.startswith("recordpublisher.")]
    assert len(marks) <= 3
    assert job.numbers() == [*range(6)]


async def test_the_number_of_a_worker_that_its_group_has_forgotten_goes_with_the_next_commit(tmp_path):
    kind = Iceberg(tmp_path)
    sinks = [await opened(kind, f"worker-{n}") for n in range(2)]
    for n, sink in enumerate(sinks):
        await sink.write(batch(b"%d" % n))
        staged = await sink.stage(number(1, f"job/worker-{n}"))
        if n:
            assert not await sink.forget_ended_lives(lambda life: life == "worker-0"), "the next commit does it"
        await sink.publish([staged])
        assert await sink.forget_ended_lives(lambda life: life == "worker-0") is bool(n)
        assert await sink.forget_ended_lives(lambda life: life == "worker-0") is bool(n)
        await sink.close()
    assert [name for name in kind.table().properties if "worker" in name] == ["recordpublisher.job/worker-1"]


async def test_a_process_whose_number_is_gone_adds_nothing_again(tmp_path):
    kind = Iceberg(tmp_path)
    job = Job(kind)
    zombie = await job.start()
    await job.commit(zombie, 0)
    for n in range(1, 5):
        start = await job.start()
        await job.commit(start, n)
        await start.alone.publish()
    with pytest.raises(rp.FencedError):
        await zombie.alone.publish()
    assert job.numbers() == [*range(5)]


async def test_delta_dates_its_numbers_and_drops_them_by_the_tables_own_rule(tmp_path):
    kind = Delta(tmp_path)
    job = Job(kind)
    await job.commit(start := await job.start(), 1)
    await start.alone.publish()
    table = DeltaTable(str(kind.data))
    assert table.metadata().configuration["delta.setTransactionRetentionDuration"] == "interval 30 days"
    actions = [json.loads(line) for line in max((kind.data / "_delta_log").glob("*.json")).read_text().splitlines()]
    assert [action["txn"]["lastUpdated"] > 0 for action in actions if "txn" in action] == [True]


async def test_a_commit_whose_number_delta_has_dropped_is_known_by_its_mark(tmp_path, monkeypatch):
    kind = Delta(tmp_path)
    job = Job(kind)
    await job.commit(start := await job.start(), 1)
    await start.alone.publish()
    monkeypatch.setattr(type(start.sink._table), "last_number", lambda *_: 0)
    await job.take_back()
    await job.start()
    assert (job.states, job.numbers()) == ([snapshot_at(1)], [1])
