"""E10: all processes of a group write to the same place; another one may be given when nobody is in."""

import pytest

from recordpublisher.fetcher.elastic.job_storage import group_job_of
from recordpublisher.fetcher.leases.group_store import LEASE_TABLE
from recordpublisher.fetcher.leases.lease_table import GroupJob
from recordpublisher.fetcher.shards.discovery import StreamList
from recordpublisher.publishers.errors import StateError
from recordpublisher.testing import run_virtual

from fakes.commits import committing_sink
from fakes.leases.alone_process import AloneProcess
from fakes.leases.elastic_processes import ElasticProcesses, TimedSink
from fakes.memory_store import MemoryStore
from fakes.scripted_source import RecordingSink


class TableSink(TimedSink):
    """Writes to a table."""

    def __init__(self, group, table):
        super().__init__(group.rows, 0.0)
        self.table = table

    def destination(self):
        return f"db://user:secret@host/{self.table}"


def test_another_table_is_refused_while_a_worker_sends_heartbeats_and_read_afterwards():
    async def story():
        group = ElasticProcesses(shards=2)
        first = await group.join(sink=TableSink(group, "orders"))
        await group.wait_until(lambda: len(first.shards) == 2)
        with pytest.raises(StateError) as error:
            await group.join(sink=TableSink(group, "events"))
        group.send()
        await group.wait_until_all_is_written()
        await first.stop()
        second = await group.join(sink=TableSink(group, "events"))
        group.send()
        await group.wait_until_all_is_written()
        await second.stop()
        return group, str(error.value)

    group, message = run_virtual(story())
    assert "writes to db://user:******@host/orders, and this process writes to db://user:******@host/events" in message
    assert "first stop all processes of the group" in message
    assert sorted(group.rows) == sorted(group.sent), "it goes on after the stored positions"
    assert b"secret" not in group.store.values[LEASE_TABLE].value


def test_a_process_with_the_same_table_joins():
    async def story():
        group = ElasticProcesses(shards=2)
        first = await group.join(sink=TableSink(group, "orders"))
        second = await group.join(sink=TableSink(group, "orders"))
        await group.wait_until(lambda: len(first.shards) == len(second.shards) == 1)
        await first.stop()
        await second.stop()

    run_virtual(story())


def test_a_group_with_new_positions_is_told_whose_rows_are_there_already(caplog):
    async def story():
        table, group = committing_sink.Table(), ElasticProcesses(shards=1)
        for _ in range(2):
            first = await group.join(sink=UsedTable(table))
            await group.wait_until(lambda first=first: first.shards)
            await first.stop()

    run_virtual(story())
    (told,) = [
        each.getMessage() for each in caplog.records if "those of the rows are in another place" in each.getMessage()
    ]
    assert told.startswith("UsedTable has rows that were written by another-job/0, and memory has no positions")


class UsedTable(committing_sink.TableSink):
    async def writers(self):
        return ["another-job/0"]


@pytest.mark.parametrize("starts_alone", [False, True])
@pytest.mark.parametrize("is_with_rows", [False, True])
def test_a_start_accepts_positions_of_a_job_that_begins_at_the_same_time(starts_alone, is_with_rows):
    async def story():
        table, group = committing_sink.Table(), ElasticProcesses(shards=1)
        entries = group.store if is_with_rows else MemoryStore()

        class LateStore(MemoryStore):
            """Another process begins the job just before this one looks for positions."""

            async def list_names(self, prefix, before=None):
                if not group.rows:
                    group.rows.append("begun")
                    first = await group.join(sink=committing_sink.TableSink(table, entries))
                    group.send()
                    await group.wait_until(lambda: table.rows)
                    await first.stop()
                return await super().list_names(prefix, before)

        late = LateStore()
        late.values = entries.values
        group.connect = lambda: late if is_with_rows and group.rows == [] else group.store
        sink = committing_sink.TableSink(table, late)
        second = await (AloneProcess(group, sink).start() if starts_alone else group.join(sink=sink))
        await group.wait_until(lambda: second.fetcher.metrics()["shards"])
        await second.stop()
        return len(table.rows)

    assert run_virtual(story()) == 5


def test_a_job_is_described_without_secrets():
    streams = StreamList(("b", "a"))
    assert group_job_of(streams, RecordingSink()) == GroupJob("RecordingSink", ("a", "b"))
    assert group_job_of(
        StreamList(("a",), look=lambda: None), committing_sink.TableSink(committing_sink.Table(), MemoryStore())
    ) == GroupJob("TableSink", None, True)


def test_another_name_is_a_difference_and_no_name_is_none():
    ours, unnamed = GroupJob("sink", ("a",), name="orders"), GroupJob("sink", ("a",))
    assert ours.contradiction(ours) is ours.contradiction(unnamed) is unnamed.contradiction(ours) is None
    theirs = GroupJob("sink", ("a",), name="events")
    assert ours.contradiction(theirs) == "the name of the group is events, and that of this process orders"


def test_each_difference_is_named():
    ours = GroupJob("new", ("a",))
    assert ours.contradiction(GroupJob("new", ("a",))) is None
    assert ours.contradiction(None) is None
    assert ours.contradiction(GroupJob("old", None, keeps_positions=True)) == (
        "the group reads a list of streams that may change, and this process reads a; "
        "the group writes to old, and this process writes to new; "
        "the group keeps its positions in the sink, and this process keeps its positions in the store"
    )
