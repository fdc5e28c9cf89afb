"""`recordpublisher local` and `judge`: the embedded endpoint as a process, and what a client has read."""

import signal
from contextlib import contextmanager

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from recordpublisher import ConfigurationError
from recordpublisher.cli.commands.local import shards_by_stream

from processes.command_line import command, process_environment
from processes.forked.command import PipedCommand


@contextmanager
def running_endpoint(*arguments: str):
    """Start the command. Yields its process and URL once it listens."""
    with PipedCommand("local", "--port", "0", *arguments, environment=process_environment()) as process:
        try:
            yield process, process.stderr.readline().split()[-1]
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_the_streams_it_was_given_until_it_is_stopped(number):
    with running_endpoint("--stream", "flights:3", "--stream", "orders:1") as (process, url):
        client = boto3.client("kinesis", endpoint_url=url, region_name="us-east-1", **KEYS)
        assert client.list_streams()["StreamNames"] == ["flights", "orders"]
        assert len(client.list_shards(StreamName="flights")["Shards"]) == 3
        client.close()

        process.send_signal(number)
        assert process.wait(timeout=60) == 0
        assert process.stdout.read() == process.stderr.read() == ""


@pytest.mark.kills
def test_with_a_folder_what_was_answered_survives_a_kill(tmp_path):
    given = ("--stream", "orders:1", "--data", str(tmp_path / "data"))
    with running_endpoint(*given) as (process, url):
        client = boto3.client("kinesis", endpoint_url=url, region_name="us-east-1", **KEYS)
        put = client.put_record(StreamName="orders", Data=b"x", PartitionKey="k")
        client.close()
        process.kill()
        process.wait()
    with running_endpoint(*given) as (_, url):
        client = boto3.client("kinesis", endpoint_url=url, region_name="us-east-1", **KEYS)
        start = {"ShardId": put["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = client.get_shard_iterator(StreamName="orders", **start)["ShardIterator"]
        (record,) = client.get_records(ShardIterator=iterator)["Records"]
        client.close()
    assert (record["Data"], record["SequenceNumber"]) == (b"x", put["SequenceNumber"])


def test_a_folder_in_use_is_one_line(tmp_path):
    with running_endpoint("--data", str(tmp_path)):
        done = command("local", "--port", "0", "--data", str(tmp_path))

    assert done.returncode == 2
    assert done.stderr.startswith("recordpublisher: option '--data' is ")
    assert done.stderr.count("\n") == 1


def test_a_port_in_use_is_one_line():
    with running_endpoint() as (_, url):
        done = command("local", "--port", url.rsplit(":", 1)[1])

    assert done.returncode == 2
    assert done.stderr.startswith("recordpublisher: option '--port' is ")
    assert done.stderr.count("\n") == 1


def test_c4_another_host_than_loopback_must_be_allowed():
    done = command("local", "--host", "0.0.0.0", "--port", "0")

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("given", ["orders", "orders:", ":1", "orders:0", "orders:-1", "orders:x", "orders:1.5"])
def test_a_stream_is_a_name_and_a_number_of_shards(given):
    with pytest.raises(ConfigurationError, match="NAME:SHARDS"):
        shards_by_stream([given])


def test_a_stream_may_be_given_once():
    with pytest.raises(ConfigurationError, match="each name once"):
        shards_by_stream(["a:1", "a:2"])


def test_faults_are_applied_by_rule_and_counted_at_the_end():
    with running_endpoint("--stream", "orders:1", "--faults", "error@ListShards*1", "--seed", "3") as (process, url):
        session = boto3.Session(region_name="us-east-1", **KEYS)
        client = session.client("kinesis", endpoint_url=url, config=Config(retries={"total_max_attempts": 1}))
        with pytest.raises(ClientError, match="InternalFailure"):
            client.list_shards(StreamName="orders")
        client.list_shards(StreamName="orders")
        client.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == "recordpublisher: faults: error 1\n"


def test_an_invalid_rule_is_one_line():
    done = command("local", "--port", "0", "--faults", "nonsense")

    assert done.returncode == 2
    assert done.stderr.startswith("recordpublisher: option '--faults' is 'nonsense': kinds: all, throttle")
    assert done.stderr.count("\n") == 1


def test_with_tls_it_prints_the_file_that_clients_trust():
    with running_endpoint("--stream", "orders:1", "--tls") as (process, trusted):
        url = process.stderr.readline().split()[-1]
        assert url.startswith("https://127.0.0.1:")
        bundle = trusted.removeprefix("AWS_CA_BUNDLE=")
        client = boto3.client("kinesis", endpoint_url=url, region_name="us-east-1", verify=bundle, **KEYS)
        assert client.list_streams()["StreamNames"] == ["orders"]
        client.close()


def test_with_limits_a_shard_takes_a_mebibyte_at_once():
    with running_endpoint("--stream", "orders:1", "--limits", "service") as (_, url):
        client = boto3.client("kinesis", endpoint_url=url, region_name="us-east-1", **KEYS)
        records = [{"Data": bytes(700_000), "PartitionKey": "k"}] * 2
        assert client.put_records(StreamName="orders", Records=records)["FailedRecordCount"] == 1
        client.close()


KEYS = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}


def test_a_schedule_is_played_and_its_records_can_be_judged(tmp_path):
    (tmp_path / "mine.toml").write_text(
        'seconds = 0.2\nkeys = 2\nshards = 1\n[[step]]\nat = 0.1\nfaults = "slow=0"\nseconds = 0.05\n'
    )
    with running_endpoint("--schedule", str(tmp_path / "mine.toml")) as (process, url):
        told = [process.stderr.readline() for _ in range(3)]
        client = boto3.client("kinesis", endpoint_url=url, region_name="us-east-1", **KEYS)
        start = {"ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}
        iterator = client.get_shard_iterator(StreamName="orders", **start)["ShardIterator"]
        lines = [record["Data"].decode() for record in client.get_records(ShardIterator=iterator)["Records"]]
        client.close()

    assert "the schedule is over" in told[-1]
    judged = command("judge", "--schedule", str(tmp_path / "mine.toml"), stdin="\n".join(lines))
    assert judged.stdout.startswith("24 records: 0 lost, 0 repeated, 0 out of order")


SCHEDULE = "seconds = 0\nkeys = 2\nstep = []"
ALL = "".join(f"shard {number} 1700000000.000 1700000002.500\n" for number in range(4))


@pytest.fixture
def schedule(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(SCHEDULE)
    return str(file)


def test_all_records_in_order_are_well(schedule):
    judged = command("judge", "--schedule", schedule, stdin=ALL)
    assert (judged.returncode, judged.stderr) == (0, "")
    assert judged.stdout == "4 records: 0 lost, 0 repeated, 0 out of order; the slowest came 2.5 s after it was put\n"


def test_a_file_with_lost_and_repeated_records_is_judged(schedule, tmp_path):
    (tmp_path / "lines").write_text("0 1700000000.000 1700000001\n\x1b[31m\n" * 2)
    judged = command("judge", str(tmp_path / "lines"), "--schedule", schedule)
    assert judged.returncode == 3
    assert judged.stdout == "4 records: 3 lost, 1 repeated, 0 out of order; the slowest came 1.0 s after it was put\n"
    assert "\x1b" not in judged.stderr


def test_a_missing_schedule_is_one_line(tmp_path):
    judged = command("judge", "--schedule", str(tmp_path / "none"), stdin="")
    assert (judged.returncode, judged.stderr.count("\n")) == (2, 1)
