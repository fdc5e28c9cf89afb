"""`recordpublisher positions`: commands run one after the other, with a lease table in a DynamoDB simulated by moto."""

import json
import re
from datetime import UTC, datetime

import boto3
import pytest

from recordpublisher.cli.commands.positions import DRY_RUN, STILL_RUNNING, WRITTEN_AGAIN, note_on_running_job
from recordpublisher.fetcher.checkpoints.snapshot_format import RestoredState
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.positions.job_positions import StoredPositions
from recordpublisher.publishers.clock import SystemClock

from fakes.kcl.lease_table import lease_item
from processes.command_line import several_commands
from servers.moto_server import serve_moto

SHARDS = ["orders/shardId-000000000000", "orders/shardId-000000000001"]
SEQUENCE = "49590338271490256608559692538361571095921575989136588898"
KEY = {"AttributeName": "leaseKey"}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Exit code, stdout and stderr of each command, in order."""
    folder = tmp_path_factory.mktemp("job")
    job = folder / "job.properties"
    with serve_in_thread(streams={"orders": 2}) as endpoint, serve_moto() as moto:
        dynamodb = boto3.client(
            "dynamodb", endpoint_url=moto, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="s"
        )
        dynamodb.create_table(
            TableName="app",
            KeySchema=[{**KEY, "KeyType": "HASH"}],
            AttributeDefinitions=[{**KEY, "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        dynamodb.put_item(TableName="app", Item=lease_item(SHARDS[0][7:], SEQUENCE, 2))
        dynamodb.put_item(TableName="app", Item=lease_item(SHARDS[1][7:]))
        dynamodb.close()
        lines = ("flink.streams=orders", f"flink.state.uri={folder}/state", f"flink.state.endpoint={moto}")
        job.write_text("\n".join(lines))
        quick = ["--watch", "0"]
        commands = {
            "show nothing": ["show", str(job)],
            "missing": ["import", str(job), "--from", "kcl:none", *quick],
            "import": ["import", str(job), "--from", "kcl:app", *quick],
            "still nothing": ["show", str(job)],
            "import --apply": ["import", str(job), "--from", "kcl:app", "--apply", *quick],
            "show": ["show", str(job)],
            "show --json": ["show", str(job), "--json"],
            "export --apply": ["export", str(job), "--to", "kcl:app", "--apply", *quick],
            "bad source": ["import", str(job), "--from", "redis:app"],
            "file target": ["export", str(job), "--to", "file:app"],
            "bad target": ["export", str(job), "--to", "kcl:"],
            "import that waits": ["import", str(job), "--from", "kcl:app", "--watch", "0.1", "--force"],
            "export that waits": ["export", str(job), "--to", "kcl:app", "--watch", "0.1"],
            "no streams": ["export", str(job), "--to", "kcl:app", "-p", "flink.streams="],
        }
        done = several_commands(endpoint, *(["positions", *command] for command in commands.values()))
        results = dict(zip(commands, done, strict=True))
        shown = folder / "positions.jsonl"
        shown.write_text(results["show --json"].stdout)
        group = ["-p", f"flink.state.uri={folder}/group", "-p", "flink.job.workers=GROUP"]
        moves = {
            "file": ["import", str(job), "--from", f"file:{shown}", *group],
            "file --apply": ["import", str(job), "--from", f"file:{shown}", *group, "--apply"],
            "show group": ["show", str(job), *group],
            "reset": ["reset", str(job), "--to", "TRIM_HORIZON"],
            "reset --apply": ["reset", str(job), "--to", "latest", "--shard", SHARDS[0][7:], "--apply"],
            "reset nowhere": ["reset", str(job), "--to", "soon"],
            "reset to 1970": ["reset", str(job), "--to", "5"],
            "reset to the future": ["reset", str(job), "--to", "2999-01-01T00:00Z", "--apply"],
            "show reset": ["show", str(job)],
        }
        moved = several_commands(endpoint, *(["positions", *command] for command in moves.values()))
        return results | dict(zip(moves, moved, strict=True))


def test_an_import_without_apply_shows_what_it_would_write_and_writes_nothing(results):
    done = results["import"]
    assert (done.returncode, done.stderr) == (0, "")
    head, first, second, running, last = done.stdout.splitlines()
    assert running == STILL_RUNNING
    assert head.split() == ["SHARD", "FOUND", "THE", "JOB", "READS"]
    assert first.split() == [SHARDS[0], f"{SEQUENCE}/2", "after", f"{SEQUENCE}-2"]
    assert second.split() == [SHARDS[1], "TRIM_HORIZON", "from", "TRIM_HORIZON"]
    assert re.fullmatch(rf"{DRY_RUN[:-3]}/.*/state\.", last)
    assert results["still nothing"].returncode == 1


@pytest.mark.parametrize("command", ["import that waits", "export that waits"])
def test_who_waits_is_told_for_what_and_how_long(results, command):
    done = results[command]
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        "recordpublisher: watching the table app and the stored positions for 0.1 s: a change there shows that a worker still runs "
        "(--watch)\n"
    )


async def test_who_writes_beside_a_job_is_told_when_it_last_stored_its_positions():
    class Running:
        workers = ()

        async def group_workers(self):
            return self.workers

        async def load(self):
            stored = RestoredState({}, None, 1, SystemClock().now_ms() - 3_000)
            return StoredPositions(RestoredState(), stored)

    assert re.fullmatch(
        rf"The job stored its positions at 20\S+Z, \d+ s ago\. {STILL_RUNNING}", await note_on_running_job(Running())
    )
    Running.workers = ("w2", "w1")
    told = await note_on_running_job(Running())
    assert told.startswith(
        "The group of the job has workers: w1, w2. While one of them sends heartbeats, --apply is refused"
    )


def test_the_positions_are_shown(results):
    head, first, second = results["show"].stdout.splitlines()
    assert head.split() == ["SHARD", "POSITION", "WATERMARK"]
    assert first.split() == [SHARDS[0], "after", f"{SEQUENCE}-2", "-"]
    assert second.split() == [SHARDS[1], "from", "TRIM_HORIZON", "-"]


def test_the_positions_are_shown_as_json(results):
    lines = [json.loads(line) for line in results["show --json"].stdout.splitlines()]
    assert lines == [
        {"shard": SHARDS[0], "start": "TRIM_HORIZON", "position": SEQUENCE, "subSequenceNumber": 2},
        {"shard": SHARDS[1], "start": "TRIM_HORIZON"},
    ]


def test_an_export_shows_what_the_table_had_and_has_now(results):
    lines = results["export --apply"].stdout.splitlines()
    assert lines[0].split() == ["SHARD", "IN", "THE", "TABLE", "CHECKPOINT"]
    assert lines[1].split() == [SHARDS[0], f"{SEQUENCE}/2", f"{SEQUENCE}/2"]
    assert "does not keep watermarks" in lines[3]
    assert lines[4] == "Written to kcl:app."


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("show nothing", 1, "the job has stored no positions"),
        ("missing", 1, "kcl:none cannot be imported: there is no such table"),
        ("bad source", 2, "option '--from' is 'redis:app'. Valid: kcl:TABLE or file:PATH"),
        ("file target", 2, "option '--to' is 'file:app'. Valid: kcl:TABLE"),
        ("bad target", 2, "option '--to' is 'kcl:'. Valid: kcl:TABLE"),
        ("no streams", 2, "flink.streams"),
        ("reset nowhere", 2, "option '--to' is 'soon'"),
        ("reset to 1970", 2, "option '--to' is '5': that is 1970-01-01T00:00:05.000Z, before the year 2000. Valid"),
        ("reset to the future", 2, "'2999-01-01T00:00:00.000Z'. Valid: a time that has passed: it is 20"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(results, command, code, message):
    done = results[command]
    assert done.returncode == code
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_was_shown_is_imported_into_a_group_of_processes(results):
    assert re.fullmatch(rf"{DRY_RUN[:-3]}/.*/group\.", results["file"].stdout.splitlines()[-1])
    assert (results["file --apply"].returncode, results["file --apply"].stderr) == (0, "")
    assert results["show group"].stdout == results["show"].stdout


def test_times_are_shown_as_iso_too(results):
    _, first, _ = results["show reset"].stdout.splitlines()
    at = int(first.split()[3])
    assert first.split()[4] == f"({datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec='milliseconds')[:-6]}Z)"


def test_a_reset_shows_where_the_job_goes_on(results):
    *rows, last = results["reset"].stdout.splitlines()
    assert rows == [
        "SHARD                        THE JOB READS",
        f"{SHARDS[0]}  from TRIM_HORIZON  reset",
        f"{SHARDS[1]}  from TRIM_HORIZON  reset",
        WRITTEN_AGAIN,
        STILL_RUNNING,
    ]
    assert re.fullmatch(rf"{DRY_RUN[:-3]}/.*\.", last)


def test_one_shard_is_reset(results):
    _, first, second, again, _, last = results["reset --apply"].stdout.splitlines()
    assert again == WRITTEN_AGAIN
    assert first.split()[:3] == [SHARDS[0], "from", "AT_TIMESTAMP"]
    assert second.split() == [SHARDS[1], "from", "TRIM_HORIZON"]
    assert last.startswith("Written to ")
