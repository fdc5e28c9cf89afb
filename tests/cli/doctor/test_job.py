"""What `doctor` says about a job's store, sink and lag."""

import asyncio
import os
import re
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

import recordpublisher as rp
from recordpublisher.cli.doctor.examination import settings_findings
from recordpublisher.cli.doctor.findings import Verdict
from recordpublisher.cli.doctor.job import JobChecks, check_alone
from recordpublisher.fetcher.checkpoints.snapshot_format import snapshot_to_json
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.local import LocalKinesis, ManualClock
from recordpublisher.plugins.host.build_from_properties import check_places
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.host.registry import NameClaim, NameOwner
from recordpublisher.plugins.lag.job_state import JobStateReader
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition

from fakes.stored_job import snapshot_at, store_alone
from servers.moto_server import serve_moto


@pytest.fixture(scope="module")
def moto():
    with serve_moto() as url:
        yield url


async def found(endpoint, registry=None, **properties):
    """The verdict and words of each check by its name."""
    job = rp.Properties({**endpoint.properties(), "flink.state.checkpoint.interval": 100, **properties})
    async with KinesisClient(job) as client, AsyncExitStack() as made:
        checks = JobChecks(registry or load_registry(), job, made)
        findings = [
            *await checks.store_findings(),
            *await checks.sink_findings(),
            await checks.lag_finding("orders", client),
        ]
    return {each.name: (each.verdict.value, each.words) for each in findings}


async def test_a_job_before_its_first_start(tmp_path):
    sink = {"flink.sink": "jsonl", "flink.sink.jsonl.path": str(tmp_path / "rows")}
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        checked = await found(endpoint, **sink, **{"flink.state.uri": str(tmp_path / "state")})

    assert checked["store"] == ("ok", f"{tmp_path}/state will be created")
    assert checked["sink"] == ("ok", "jsonl, configured")
    assert checked["sink: folder"][0] == checked["sink: positions"][0] == "ok"
    assert checked["orders: lag"][0] == "not checked"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["jsonl", "sql"])
async def test_a_sink_that_keeps_the_positions_needs_no_store(tmp_path, kind):
    place = {"jsonl": tmp_path / "rows", "sql": f"sqlite:///{tmp_path}/rows.db"}[kind]
    key = {"jsonl": "path", "sql": "uri"}[kind]
    sink = {"flink.sink": kind, f"flink.sink.{kind}.{key}": str(place), "flink.job.name": "orders"}
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        before = await found(endpoint, **sink)
        endpoint.stream("orders").put(b"{}", "key")
        async with rp.DataFetcher("orders", {**endpoint.properties(), **sink}, start="earliest") as job:
            await job.run_bounded(stop_at_tip=True)
        after = await found(endpoint, **sink)

    assert before["store"] == ("ok", f"not needed: {kind} keeps the positions with its rows, positions of 0 shards")
    assert after["store"] == ("ok", f"not needed: {kind} keeps the positions with its rows, positions of 1 shard")


@pytest.mark.parametrize("workers", ["ALONE", "GROUP"])
@pytest.mark.parametrize("has_folder", [False, True])
@pytest.mark.parametrize("kind", ["jsonl", "sql"])
async def test_a_state_store_that_is_added_to_positions_next_to_the_rows_is_a_problem(
    tmp_path, kind, has_folder, workers
):
    """`recordpublisher run` with the same properties is refused."""
    place = {"jsonl": tmp_path / "rows", "sql": f"sqlite:///{tmp_path}/rows.db"}[kind]
    sink = {"flink.sink": kind, f"flink.sink.{kind}.{'path' if kind == 'jsonl' else 'uri'}": str(place)}
    properties = {**sink, "flink.job.name": "orders"}
    store = {"flink.state.uri": str(tmp_path / "state"), "flink.job.workers": workers}
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        first = await found(endpoint, **properties, **store)
        endpoint.stream("orders").put(b"{}", "key")
        async with rp.DataFetcher("orders", {**endpoint.properties(), **properties}, start="earliest") as job:
            await job.run_bounded(stop_at_tip=True)
        if has_folder:
            (tmp_path / "state").mkdir()
        after = await found(endpoint, **properties, **store)
        with pytest.raises(rp.StateError, match="positions of worker"):
            async with rp.DataFetcher("orders", {**endpoint.properties(), **properties, **store}) as job:
                await job.run_bounded(stop_at_tip=True)

    assert first["store"][0] == "ok"
    assert after["store"][0] == "PROBLEM"
    assert "so a start is refused" in after["store"][1]


async def test_a_sink_that_cannot_be_made_or_read_is_told_by_its_own_checks(tmp_path):
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        unknown = await found(endpoint, **{"flink.sink": "jsnl"})
        away = await found(endpoint, **{"flink.sink": "sql", "flink.sink.sql.uri": f"sqlite:///{tmp_path}/no/rows.db"})

    assert (
        unknown["store"] == away["store"] == ("not checked", "flink.state.uri is not set, and the sink cannot be read")
    )
    assert unknown["sink"][0] == "PROBLEM"
    assert "PROBLEM" in {verdict for name, (verdict, _) in away.items() if name.startswith("sink")}


async def test_a_job_that_stores_no_positions_is_told_what_a_restart_does():
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        checked = await found(endpoint, **{"flink.sink": "memory"})

    assert checked["sink"][0] == "ok"
    assert "no positions are stored: each start" in checked["sink"][1]


@pytest.mark.parametrize(
    ("properties", "name", "remedy"),
    [
        ({"flink.sink": "jsnl"}, "sink", "jsonl"),
        ({"flink.sink": "jsonl", "flink.sink.jsonl.path": __file__}, "sink: folder", "a folder that this user can"),
        ({"flink.sink": "callback", "flink.sink.callback.function": "os:nothing"}, "sink", "has no attribute"),
        ({"flink.sink": "map", "flink.sink.map.function": "nowhere:f"}, "sink", "No module named 'nowhere'"),
        ({"flink.deserializer.error": "DEAD_LETTER"}, "dead-letter sink", "flink.deadletter.sink"),
        ({"flink.state.uri": __file__}, "store", "a folder that this user can write"),
        ({"flink.state.uri": "pigeon://x"}, "store", "Valid: a folder, s3://bucket/prefix"),
    ],
)
async def test_a_store_or_sink_that_cannot_be_used(properties, name, remedy):
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        verdict, words = (await found(endpoint, **properties))[name]

    assert verdict == "PROBLEM"
    assert remedy in words


async def test_a_state_folder_that_is_a_dangling_link_is_a_problem(tmp_path):
    (tmp_path / "state").symlink_to(tmp_path / "gone")
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        verdict, words = (await found(endpoint, **{"flink.state.uri": str(tmp_path / "state")}))["store"]

    assert verdict == "PROBLEM"
    assert f"state is a link to {tmp_path}/gone, which does not exist" in words


@pytest.mark.parametrize("sink", ["callback", "map"])
async def test_a_function_is_imported_and_not_called(sink):
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        checked = await found(endpoint, **{"flink.sink": sink, f"flink.sink.{sink}.function": "json:dumps"})

    assert checked["sink: function"] == ("ok", "json:dumps is imported; it is not called")


@pytest.mark.parametrize(
    ("uri", "actions"),
    [("s3://bucket/orders", ["s3:PutObject"]), ("dynamodb://states/orders", ["dynamodb:UpdateItem"])],
)
async def test_the_actions_that_store_positions_are_named(uri, actions, moto):
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        checked = await found(endpoint, **{"flink.state.uri": uri, "flink.state.endpoint": moto})

    assert checked["store"][0] == "ok"
    assert [name for name in checked if name.startswith("store: ")] == [f"store: {action}" for action in actions]
    assert checked[f"store: {actions[0]}"][0] == "not checked"


class PluginSink(rp.Sink):
    """A sink of another package, with a check of its own."""

    def __init__(self, properties):
        self.closed = False

    async def write(self, batch):
        raise AssertionError("doctor writes nothing")

    def checks(self):
        async def reach():
            raise rp.SinkError("the broker does not answer: start it")

        async def grant():
            return None

        return {"broker": reach, "write": grant}


async def test_the_sink_of_a_plugin_says_what_it_finds():
    registry = load_registry()
    registry.sinks.claim(NameClaim("plugin", PluginSink, NameOwner("plugin", "package")))
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        checked = await found(endpoint, registry, **{"flink.sink": "plugin"})

    assert checked["sink: broker"] == ("PROBLEM", "the broker does not answer: start it")
    assert checked["sink: write"] == ("not checked", "a check would change something")


async def test_the_positions_that_a_sink_keeps_are_closed(tmp_path):
    opened, closed = [], []

    class Store(rp.FolderStore):
        async def close(self):
            closed.append(self)

    class KeepingSink(rp.JsonlSink):
        def __init__(self, properties):
            super().__init__(properties)
            self.store = Store(tmp_path / "entries")
            opened.append(self.store)

        def entries(self):
            return self.store

    registry = load_registry()
    registry.sinks.claim(NameClaim("keeping", KeepingSink, NameOwner("keeping", "package")))
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        await found(endpoint, registry, **{"flink.sink": "keeping", "flink.sink.jsonl.path": str(tmp_path)})

    assert opened
    assert set(opened) <= set(closed)


@pytest.mark.parametrize(("age_hours", "verdict"), [(1, "ok"), (22, "PROBLEM")])
async def test_the_time_until_unread_records_are_lost(tmp_path, age_hours, verdict):
    clock = ManualClock(SystemClock().now_ms() - age_hours * 3_600_000)
    async with LocalKinesis(streams={"orders": 1}, clock=clock) as endpoint:
        done, _ = (endpoint.stream("orders").put(data, "k") for data in (b"read", b"unread"))
        state = ShardState(StartingPosition.trim_horizon(), SequenceNumber(done))
        snapshot = snapshot_to_json({"orders/shardId-000000000000": state}, None, 1)
        await store_alone(rp.FolderStore(tmp_path / "state"), snapshot)
        clock.advance(age_hours * 3_600_000)
        sink = {"flink.sink": "kinesis", "flink.sink.kinesis.stream": "orders"}
        checked = await found(endpoint, **sink, **{"flink.state.uri": str(tmp_path / "state")})

    assert checked["store"] == ("ok", "reachable, positions of 1 shard")
    assert checked["orders: lag"][0] == verdict
    assert ("start the job now, or increase the retention" in checked["orders: lag"][1]) is (verdict == "PROBLEM")


INTERVAL = {"flink.state.checkpoint.interval": 100}


async def checked(properties):
    """The verdict and words about the store and about other processes."""
    async with AsyncExitStack() as made:
        checks = JobChecks(load_registry(), rp.Properties(properties), made)
        store, *_ = await checks.store_findings()
        running = await checks.running_finding()
    return store, running


@asynccontextmanager
async def job(endpoint, sink=None, **properties):
    """A job that runs, and its properties. It must still be running at the end."""
    given = {**endpoint.properties(), **INTERVAL, "flink.stream.initpos": "TRIM_HORIZON", **properties}
    async with rp.DataFetcher(["orders"], given, sink=sink) as fetcher:
        running = asyncio.create_task(fetcher.run())
        for _ in range(6_000):  # a minute
            if len(fetcher.metrics()["shards"]) == len(endpoint.stream("orders").shards):
                break
            await asyncio.sleep(0.01)
        yield given
        assert not running.done()
        fetcher.stop()
        await running


def places(tmp_path):
    return {
        "folder": {"flink.state.uri": str(tmp_path / "state"), "flink.sink": "memory"},
        "rows": {"flink.sink": "jsonl", "flink.sink.jsonl.path": str(tmp_path / "rows")},
        "database": {
            "flink.sink": "sql",
            "flink.sink.sql.uri": f"sqlite:///{tmp_path}/rows.db",
            "flink.sink.sql.table": "orders",
            "flink.job.name": "billing",
        },
    }


@pytest.mark.parametrize("place", ["folder", "rows", "database"])
async def test_a_job_that_runs_is_named_and_goes_on(place, tmp_path):
    async with (
        LocalKinesis(streams={"orders": 1}) as endpoint,
        job(endpoint, **places(tmp_path)[place]) as properties,
    ):
        _, running = await checked(properties)

    assert running.verdict == "PROBLEM"
    assert running.words.startswith("worker ")
    assert re.search(
        rf"\(process {os.getpid()} on .*\) (stores checkpoints|runs this job): a start here would replace that worker",
        running.words,
    )


@pytest.mark.parametrize("place", ["folder", "rows"])
async def test_positions_of_a_job_with_another_name_are_found(place, tmp_path):
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        async with job(endpoint, **places(tmp_path)[place], **{"flink.job.name": "orders"}) as properties:
            pass
        findings = await checked({**properties, "flink.job.name": "bills"})

    words = [each.words for each in findings if each.verdict == "PROBLEM"]
    assert len(words) == 1
    assert "has the positions of job 'orders', and this is job 'bills'" in words[0]


async def test_a_job_that_has_stopped_is_not_running(tmp_path):
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        async with job(endpoint, **places(tmp_path)["folder"]) as properties:
            pass
        store, running = await checked(properties)

    assert (store.verdict, store.words) == ("ok", "reachable, positions of 1 shard")
    assert running.verdict == "ok"
    assert running.words == "no: the worker that ran it was stopped"


@pytest.mark.parametrize("workers", ["ALONE", "GROUP"])
async def test_the_missing_state_store_of_a_job_with_positions_next_to_its_rows_is_a_problem(workers, tmp_path):
    given = {**places(tmp_path)["rows"], "flink.job.workers": workers}
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        endpoint.stream("orders").put(b"{}", "key")
        properties = {**endpoint.properties(), **given}
        with_store = {**properties, "flink.state.uri": str(tmp_path / "state")}
        async with rp.DataFetcher("orders", with_store, start="earliest") as job:
            await job.run_bounded(stop_at_tip=True)
        store, _ = await checked(properties)
        with pytest.raises(rp.StateError, match="whose lease table is not there"):
            async with rp.DataFetcher("orders", properties):
                pass

    assert store.verdict == "PROBLEM"
    assert "their lease table is elsewhere, so a start is refused: use the flink.state.uri of their job" in store.words


class KeepsPositions(rp.MemorySink):
    """Stores the positions itself."""

    def __init__(self, properties):
        super().__init__()

    async def stored_positions(self):
        return []


async def test_a_sink_that_stores_the_positions_itself_does_not_tell_whether_the_job_runs():
    registry, owner = load_registry(), NameOwner("keeps", "keeps")
    registry.sinks.claim(NameClaim("keeps", KeepsPositions, owner))
    async with AsyncExitStack() as made:
        running = await JobChecks(registry, rp.Properties({"flink.sink": "keeps"}), made).running_finding()

    assert (running.verdict.value, running.words) == (
        "not checked",
        "keeps keeps the positions with its rows, which do not tell whether a job runs",
    )


async def test_a_job_without_checkpoints_in_between_is_not_known_to_run(tmp_path):
    given = places(tmp_path)["folder"] | {"flink.state.checkpoint.interval": -1}
    async with LocalKinesis(streams={"orders": 1}) as endpoint, job(endpoint, **given) as properties:
        _, running = await checked(properties)

    assert running.verdict == "not checked"
    assert running.words.endswith("it stores its positions only when it stops (flink.state.checkpoint.interval)")


@pytest.mark.parametrize("sink", ["memory", "jsonl"])
async def test_a_worker_of_a_group_is_named_and_keeps_its_shards(sink, tmp_path):
    group = {
        "flink.job.workers": "GROUP",
        "flink.state.uri": str(tmp_path / "state"),
        "flink.lease.duration": 3_000,
        "flink.sink": sink,
        "flink.sink.jsonl.path": str(tmp_path / "rows"),
    }
    async with LocalKinesis(streams={"orders": 2}) as endpoint:
        async with job(endpoint, **group) as properties:
            store, running = await checked(properties)
        _, later = await checked(properties)
        alone, _ = await checked({**properties, "flink.job.workers": "ALONE"})

    assert (store.verdict, store.words) == ("ok", "a group with 2 shards and 1 worker")
    assert running.verdict == "ok"
    assert running.words.startswith("yes: worker ")
    assert running.words.endswith(
        "(2 shards); a process that starts here joins them, and takes its share of the shards"
    )
    assert later.words == "no: no worker of the group sends heartbeats"
    assert alone.words.endswith("positions of 2 shards")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, None),
        ({"flink.streams": "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"}, None),
        ({"flink.streams": "orders=arn:aws:kinesis:eu-west-1:123456789012:stream/x"}, None),
        (
            {"flink.streams": None, "flink.streams.file": "list"},
            "the group reads orders, and this process reads a list ",
        ),
        ({"flink.sink": "memory"}, "the group writes to JsonlSink.*, and this process writes to "),
        ({"flink.streams": "others"}, "the group reads orders, and this process reads others"),
    ],
)
async def test_a_worker_that_a_running_group_would_refuse_is_a_problem(changed, words, tmp_path, monkeypatch):
    group = {
        "flink.job.workers": "GROUP",
        "flink.job.name": "one",
        "flink.streams": "orders",
        "flink.state.uri": str(tmp_path / "state"),
        "flink.lease.duration": 3_000,
        "flink.sink": "jsonl",
        "flink.sink.jsonl.path": str(tmp_path / "rows"),
    }
    (tmp_path / "list").write_text("orders", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    async with LocalKinesis(streams={"orders": 2}) as endpoint, job(endpoint, **group) as properties:
        merged = {**properties, **changed}
        _, running = await checked({key: value for key, value in merged.items() if value is not None})

    if words is None:
        assert running.verdict == "ok", running
    else:
        assert running.verdict == "PROBLEM"
        assert re.search(f"a start here is refused, because it differs: {words}", running.words)


async def test_a_program_whose_function_lists_the_streams_joins_its_group(tmp_path):
    given = {"flink.job.workers": "GROUP", "flink.state.uri": str(tmp_path), "flink.lease.duration": 3_000}
    async with LocalKinesis(streams={"orders": 2}) as endpoint:
        given |= endpoint.properties()
        async with rp.DataFetcher(lambda: ["orders"], given, sink="memory") as fetcher:
            running = asyncio.create_task(fetcher.run())
            await asyncio.sleep(1)
            # As `doctor` reads them from the program: with the present streams, and without the function.
            _, found = await checked({**fetcher.properties_for_commands(), "flink.sink": "memory"})
            fetcher.stop()
            await running

    assert found.verdict == "ok", found


async def test_a_folder_that_a_group_cannot_write_is_a_problem():
    store, _ = await checked({"flink.job.workers": "GROUP", "flink.state.uri": __file__, "flink.sink": "memory"})

    assert store.verdict == "PROBLEM"
    assert "Valid: a folder that this user can write" in store.words


async def test_an_error_of_a_sink_does_not_hide_the_store_of_a_group(tmp_path):
    given = {"flink.job.workers": "GROUP", "flink.state.uri": str(tmp_path / "state")}
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        checked = await found(endpoint, **given, **{"flink.sink": "map", "flink.sink.map.function": "no_shop:handle"})

    assert checked["store"] == ("ok", "reachable, no group yet")
    assert checked["sink"][0] == "PROBLEM"
    assert "no_shop" in checked["sink"][1]


async def test_a_key_of_flink_without_effect_is_a_problem():
    given = rp.Properties({"aws.region": "eu-west-1", "flink.watermark.sync.queue.capacity": "100"})
    (finding, _) = await settings_findings(load_registry(), given, ["orders"])
    assert finding.verdict is Verdict.PROBLEM
    assert "has no effect here" in finding.words


@pytest.mark.slow
async def test_a_group_continues_where_a_job_ran_alone(tmp_path):
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        async with job(endpoint, **places(tmp_path)["folder"]) as properties:
            pass
        store, _ = await checked({**properties, "flink.job.workers": "GROUP"})

    assert (store.verdict, store.words) == (
        "ok",
        "a job that ran alone; a process that starts here continues at its positions",
    )


async def test_a_worker_that_stores_checkpoints_elsewhere_is_named(tmp_path):
    alone = await store_alone(rp.FolderStore(tmp_path / "state"), snapshot_at(0))

    async def store():
        for number in range(1, 1_000):
            await alone.store(snapshot_at(number))
            await asyncio.sleep(0.05)

    storing = asyncio.create_task(store())
    _, running = await checked({**places(tmp_path)["folder"], **INTERVAL})
    storing.cancel()

    assert running.verdict == "PROBLEM"
    assert running.words.startswith(f"worker {alone.name} (process {os.getpid()} on ")
    assert "stores checkpoints: a start here would replace that worker, which would fail" in running.words


async def test_a_worker_that_was_killed_is_replaced_by_a_start(tmp_path, monkeypatch):
    monkeypatch.setattr("recordpublisher.cli.doctor.job.HOST", "another machine")
    alone = await store_alone(rp.FolderStore(tmp_path / "state"), snapshot_at(0))
    _, running = await checked({**places(tmp_path)["folder"], **INTERVAL})

    assert running.verdict == "ok"
    assert running.words.startswith(f"probably not: worker {alone.name} (process {os.getpid()} on ")
    assert running.words.endswith("A start here replaces it")


async def test_a_sink_that_stores_snapshots_itself_next_to_a_store_is_asked_for_no_worker(tmp_path):
    """The job runs: its sink has another snapshot at the second look."""
    store, looks = rp.FolderStore(tmp_path), []

    class Keeps(rp.MemorySink):
        async def stored_positions(self):
            looks.append(1)
            return [snapshot_at(len(looks))]

    await store_alone(store, snapshot_at(1))
    with pytest.raises(rp.RecordPublisherError, match="on this machine\\) runs this job"):
        await check_alone(JobStateReader(store, Keeps()), rp.Properties({"flink.state.checkpoint.interval": 100}))


@pytest.mark.parametrize("other", [False, True])
async def test_dead_letters_need_a_place_of_their_own(tmp_path, other):
    letters = tmp_path / "letters" if other else tmp_path / "rows"
    job = {
        "flink.sink": "jsonl",
        "flink.sink.jsonl.path": tmp_path / "rows",
        "flink.deserializer.error": "DEAD_LETTER",
        "flink.deadletter.sink": "jsonl",
        "flink.deadletter.jsonl.path": letters,
    }
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        verdict, words = (await found(endpoint, **job))["dead-letter sink"]
        properties = rp.Properties({**endpoint.properties(), **job})
        if other:
            rp.DataFetcher("orders", properties)
        else:
            with pytest.raises(rp.ConfigurationError) as refused:
                rp.DataFetcher("orders", properties)
            assert words == str(refused.value)
    assert verdict == ("ok" if other else "PROBLEM")
    told = f"the job's rows and its dead letters would both be in JsonlSink, folder {tmp_path / 'rows'}"
    assert (told in words) is not other


async def test_sinks_without_a_place_may_be_of_one_class():
    class Own(rp.Sink):
        async def write(self, batch):
            pass

    check_places(rp.Properties({}), Own(), Own())
