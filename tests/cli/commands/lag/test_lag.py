"""`recordpublisher lag` against the embedded endpoint (A2)."""

import asyncio
import json
import re
import time

import pytest

from recordpublisher.cli.commands.lag import stale_checkpoint_age_ms
from recordpublisher.fetcher.checkpoints.snapshot_format import snapshot_to_json
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.lag.job_snapshot import ShardSnapshot
from recordpublisher.plugins.stores.folder_store import FolderStore
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition

from fakes.stored_job import store_alone
from processes.command_line import command

IDS = ["shardId-000000000000", "shardId-000000000001"]
QUICK = ("-p", "flink.alarm.interval=300ms")


@pytest.fixture(scope="module")
def endpoint():
    """A stream of two shards with ten records each."""
    with serve_in_thread(streams={"flights": 2}) as served:
        stream = served.call(served.endpoint.stream, "flights")
        served.sequences = {
            shard: [served.call(stream.put, b"%d" % number, "key", half * 2**127) for number in range(10)]
            for half, shard in enumerate(IDS)
        }
        time.sleep(1.3)  # the service's time is in whole seconds
        yield served


def properties(endpoint):
    return [part for pair in endpoint.endpoint.properties().items() for part in ("-p", "=".join(pair))]


@pytest.mark.parametrize("words", [["lag", "orders"], ["lag", "orders", "--watch"], ["dashboard", "JOB"]])
def test_a_publisher_that_lists_its_streams_itself_is_not_looked_for_in_kinesis(words, tmp_path):
    job = tmp_path / "job.properties"
    job.write_text("flink.streams=orders\nflink.sink=memory\n")
    given = [str(job) if word == "JOB" else word for word in words]
    done = command(*given, "-p", "flink.stream.recordpublisher=DYNAMODB_STREAMS")

    assert (done.returncode, done.stdout) == (2, "")
    assert "'flink.stream.recordpublisher' is 'DYNAMODB_STREAMS'" in done.stderr
    assert (
        "this publisher lists its streams itself, and only streams of Kinesis can be asked for their newest records"
        in done.stderr
    )
    assert "lag --live URL" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.fixture
def state(endpoint, tmp_path):
    """A job that has read shard 0 to its end and one record of shard 1."""
    positions = [endpoint.sequences[IDS[0]][-1], endpoint.sequences[IDS[1]][0]]
    states = {
        f"flights/{shard}": ShardState(
            StartingPosition.trim_horizon(), SequenceNumber(sequence), watermark=number, arrival_ms=now_ms()
        )
        for number, (shard, sequence) in enumerate(zip(IDS, positions, strict=True))
    }
    asyncio.run(stored(tmp_path, snapshot_to_json(states, None, 1)))
    return str(tmp_path)


async def stored(folder, snapshot):
    await store_alone(FolderStore(folder), snapshot)


def now_ms():
    return round(time.time() * 1000)


def lag(endpoint, *arguments):
    return command("lag", "flights", *properties(endpoint), *arguments)


def test_where_a_sink_keeps_no_positions_of_the_job_is_named(endpoint, tmp_path):
    given = {"flink.sink": "sql", "flink.sink.sql.uri": f"sqlite:///{tmp_path}/ev.db", "flink.job.name": "other"}
    done = lag(endpoint, *(part for pair in given.items() for part in ("-p", "=".join(pair))))

    assert done.returncode == 1
    assert (
        f"no positions are stored in table recordpublisher_commits of sqlite:///{tmp_path}/ev.db, job 'other'"
        in done.stderr
    )


def test_a_table_shows_the_lag_behind_the_checkpoint(endpoint, state):
    done = lag(endpoint, "--state", state)

    assert (done.returncode, done.stderr) == (0, "")
    head, first, second = done.stdout.splitlines()
    assert head.split() == ["SHARD", "WORKER", "LAG", "UNREAD", "IDLE", "LOST", "IN"]
    assert re.match(rf"{IDS[0]} +[0-9a-f]{{16}} +0 s +no +no +-$", first), first
    assert re.match(rf"{IDS[1]} +[0-9a-f]{{16}} +(0|[\d.]+ (ms|s|min)) +yes +no +(24.0 h|1.0 d)$", second), second


def test_json_lines_have_the_same_fields(endpoint, state):
    done = lag(endpoint, "--state", state, "--json")

    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["shard"], line["unread"]) for line in lines] == [(IDS[0], False), (IDS[1], True)]
    assert lines[1]["lagMs"] > 0
    assert 0 < lines[1]["lossMs"] <= 24 * 3_600_000


def test_check_exits_with_3_and_names_the_shard(endpoint, state):
    done = lag(endpoint, "--state", state, "--check", "--grace", "0.1", *QUICK)

    assert done.returncode == 3
    assert re.sub("worker [0-9a-f]+", "worker w", done.stderr) == (
        f"recordpublisher: ALARM {IDS[1]}: worker w stores no progress; "
        f"the lowest watermark of the job is that of flights/{IDS[0]}\n"
    )


def test_check_exits_with_0_while_no_record_is_older_than_the_interval(endpoint, state):
    done = lag(endpoint, "--state", state, "--check")

    assert (done.returncode, done.stderr) == (0, "")


def test_without_a_state_it_shows_tips_and_rates(endpoint):
    done = lag(endpoint, "--json", "-p", "flink.alarm.interval=1000000")

    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["tip"] for line in lines] == [endpoint.sequences[shard][-1] for shard in IDS]
    assert [line["recordsPerSecond"] for line in lines] == [pytest.approx(10 / 1000, rel=0.01)] * 2
    assert [(line["isIdle"], line["lagMs"], line["unread"]) for line in lines] == [(False, None, None)] * 2


def test_without_a_state_the_lag_is_shown_as_unknown(endpoint):
    head, first, _ = lag(endpoint, "-p", "flink.alarm.interval=1000000").stdout.splitlines()

    assert head.split() == ["SHARD", "LAG", "IDLE", "RECORDS/S", "BYTES/S", "NEWEST", "SEQUENCE", "NUMBER"]
    row = rf"{IDS[0]} +- +no +0\.01 +0\.01 +[\d.]+ \S+ +{endpoint.sequences[IDS[0]][-1]}$"
    assert re.match(row, first), first


WRONG = [
    (("--check",), 2, "option '--check' needs stored positions: give --state, or"),
    (
        ("--state", "/nowhere/at/all"),
        2,
        "property 'flink.state.uri' is '/nowhere/at/all': it does not exist",
    ),
    (("--state", "pigeon://x"), 2, "flink.state.uri' is 'pigeon://x'"),
    (("--live", "http://127.0.0.1:1"), 1, "no running job serves http://127.0.0.1:1/snapshot.json: "),
    (("--live", "http://127.0.0.1:1", "--check"), 2, "option '--check' cannot be combined with '--live'"),
    (("--watch", "--json"), 2, "option '--json' cannot be combined with '--watch'"),
    (
        ("--check", "-p", "flink.alarm.interval=-1"),
        2,
        "'flink.alarm.interval' is -1: --check exits with 3 once records have waited for this interval",
    ),
    (
        ("--check", "-p", "flink.state.checkpoint.interval=-1"),
        2,
        "interval' is -1: the job stores its positions only when it stops",
    ),
    (("-p", "flink.alarm.interval=soon"), 2, "property 'flink.alarm.interval' is 'soon'"),
]


@pytest.mark.parametrize(("arguments", "code", "words"), WRONG)
def test_an_error_is_one_line(endpoint, arguments, code, words):
    done = lag(endpoint, *arguments)

    assert done.returncode == code
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert words in done.stderr


def test_an_empty_state_folder_is_an_error(endpoint, tmp_path):
    done = lag(endpoint, "--state", str(tmp_path), "--check")

    assert done.returncode == 1
    assert "no positions are stored in /" in done.stderr


def test_an_unknown_stream_is_reported_with_the_existing_ones(endpoint):
    done = command("lag", "fligths", *properties(endpoint))

    assert done.returncode == 1
    assert (
        done.stderr
        == f"recordpublisher: stream 'fligths' does not exist in us-east-1 (from aws.region) at {endpoint.url}; existing streams: flights\n"
    )


def test_a_jobs_file_in_the_place_of_the_stream_names_its_streams(endpoint, state, tmp_path):
    job = tmp_path / "job.properties"
    given = {**endpoint.endpoint.properties(), "flink.streams": "flights", "flink.state.uri": state}
    job.write_text("\n".join(f"{key}={value}" for key, value in given.items()))

    done = command("lag", str(job), "--json")

    assert [json.loads(line)["stream"] for line in done.stdout.splitlines()] == ["flights"] * 2, done.stderr


def test_a_jobs_file_in_the_place_of_a_stream_is_told(tmp_path):
    done = command("describe", "job.properties")

    assert done.returncode == 2
    assert "a job was given instead of a stream" in done.stderr
    assert "STREAM --properties job.properties" in done.stderr


def shard_with(**fields):
    return ShardSnapshot(stream="flights", shard=IDS[0], **fields)


@pytest.mark.parametrize(
    ("fields", "interval_ms", "silent_ms"),
    [
        ({"unread": True, "checkpoint_age_ms": 200_000}, 10_000, 200_000),
        ({"unread": True, "checkpoint_age_ms": 40_000}, 10_000, None),
        ({"unread": False, "checkpoint_age_ms": 200_000}, 10_000, None),  # there was nothing to store
        ({"unread": True}, 10_000, None),
        ({"unread": True, "checkpoint_age_ms": 200_000}, -1, None),  # positions are only stored by a stop
    ],
)
def test_whether_a_process_runs_is_known_by_the_last_checkpoint(fields, interval_ms, silent_ms):
    assert stale_checkpoint_age_ms([shard_with(**fields)], interval_ms) == silent_ms


@pytest.fixture
def stopped(endpoint, tmp_path):
    """The state of a job that stopped three minutes ago, with nine records of shard 1 unread."""
    one = {
        f"flights/{IDS[1]}": ShardState(StartingPosition.trim_horizon(), SequenceNumber(endpoint.sequences[IDS[1]][0]))
    }
    asyncio.run(stored(tmp_path, snapshot_to_json(one, None, 1, taken_ms=now_ms() - 200_000)))

    return str(tmp_path)


def test_a_job_of_which_no_process_runs_is_told(endpoint, stopped):
    told = lag(endpoint, "--state", stopped).stderr

    assert re.search(
        r"no process of this job has stored a checkpoint for [\d.]+ min, although records wait\. Either no process runs, or [^.]*$",
        told,
    )


def test_check_exits_with_3_when_records_of_a_job_that_does_not_run_are_older_than_the_interval(endpoint, stopped):
    done = lag(endpoint, "--state", stopped, "--check", "--grace", "0.1", *QUICK)

    assert done.returncode == 3
    assert "Either no process runs, or its state store or its sink does not respond\n" in done.stderr
    assert f"ALARM {IDS[1]}: worker " in done.stderr


def test_check_says_when_it_would_exit_with_3(endpoint, stopped):
    done = lag(endpoint, "--state", stopped, "--check")

    assert done.returncode == 0
    assert done.stderr.endswith(
        ". --check exits with 3 once the records have waited for 5.0 min (flink.alarm.interval)\n"
    )


def test_the_help_of_check_names_the_time_that_it_needs():
    said = " ".join(command("lag", "--help").stdout.split())
    assert "records unread for flink.alarm.interval (default: 5 minutes)" in said
