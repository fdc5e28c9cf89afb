"""`recordpublisher tail` of a publisher and of a queue that plugins bring: neither is looked for in Kinesis."""

import json

import pytest

from processes.command_line import command

PLUGIN = """
import recordpublisher as rp
from recordpublisher.publishers.base import QueueSource


class Reading(rp.RecordPublisher):
    def __init__(self, shard, start):
        self.shard = shard
        self.next = int(start.sequence_number or 1) + (start.type is rp.PositionType.AFTER_SEQUENCE_NUMBER)

    async def run(self, consumer):
        for number in range(self.next, 4):
            record = rp.UserRecord(f"{self.shard.shard_id}{number}".encode(), str(number), 1.0, "key")
            last = rp.SequenceNumber(str(number))
            await consumer(rp.RecordBatch(self.shard, [record], read_position=last, raw_count=1, raw_bytes=2))
        return rp.RunResult.COMPLETE


class Shelf(rp.RecordPublisherFactory):
    def __init__(self, properties):
        pass

    async def discover(self, stream, after):
        return [rp.Shard(stream, each, closed=True) for each in "ab"]

    async def create(self, shard, starting_position, metrics):
        return Reading(shard, starting_position)


class Letters(QueueSource):
    pass


@rp.hookimpl
def recordpublisher_register_publishers(registry):
    registry.add("SHELF", Shelf)
    registry.add("LETTERS", Letters)
"""


@pytest.fixture
def site(tmp_path):
    (tmp_path / "shelf.py").write_text(PLUGIN)
    info = tmp_path / "shelf-0.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text("[recordpublisher]\nmine = shelf\n")
    return tmp_path


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        (["--shard", "a", "--no-follow"], ["a1", "a2", "a3"]),
        (["--shard", "b", "--from", "2", "-n", "1"], ["b2"]),
        (["--shard", "b", "--from", f"{2:056}", "-n", "2"], ["b2", "b3"]),
    ],
)
def test_shards_are_those_that_the_publisher_lists(site, options, printed):
    done = command("tail", "books", *options, "-p", "flink.stream.recordpublisher=SHELF", path=site)

    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line)["data"] for line in done.stdout.splitlines()] == printed


def test_the_publisher_gets_the_name_of_a_stream_that_is_given_as_an_arn(site):
    arn = "arn:aws:dynamodb:eu-west-1:123456789012:table/books"
    done = command("tail", arn, "--shard", "a", "--no-follow", "-p", "flink.stream.recordpublisher=SHELF", path=site)

    assert (done.returncode, done.stderr) == (0, "")
    assert {json.loads(line)["stream"] for line in done.stdout.splitlines()} == {"books"}


def test_an_unknown_shard_is_answered_with_those_of_the_publisher(site):
    done = command("tail", "books", "--shard", "c", "-p", "flink.stream.recordpublisher=SHELF", path=site)

    assert done.returncode == 2
    assert "'--shard' is 'c'. Valid: a shard of the stream: a, b" in done.stderr


def test_a_queue_is_answered_with_what_reads_shards(site):
    done = command("tail", "letters", "-p", "flink.stream.recordpublisher=LETTERS", path=site)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert (
        "what is shown would be taken from the queue. Valid: the name of a publisher that reads shards" in done.stderr
    )


@pytest.mark.parametrize(
    "words", [["lag", "letters"], ["lag", "letters", "--watch"], ["lag", "JOB"], ["dashboard", "JOB"]]
)
def test_lag_of_a_queue_does_not_look_for_it_in_kinesis(site, words):
    job = site / "job.properties"
    job.write_text("flink.streams=letters\nflink.sink=memory\n")
    given = [str(job) if word == "JOB" else word for word in words]
    done = command(*given, "-p", "flink.stream.recordpublisher=LETTERS", "-p", "aws.region=eu-west-1", path=site)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "'flink.stream.recordpublisher' is 'LETTERS': this publisher reads a queue that is not" in done.stderr
    assert "Valid: lag --live URL" in done.stderr
    assert "positions show" not in done.stderr


@pytest.mark.parametrize("words", [["describe", "books"], ["delete", "books", "--yes"]])
def test_a_command_for_streams_of_kinesis_refuses_a_plugins_publisher(site, words):
    done = command(*words, "-p", "flink.stream.recordpublisher=SHELF", path=site)

    assert (done.returncode, done.stdout) == (2, "")
    assert "this publisher lists its streams itself, and this command asks Kinesis for its own streams" in done.stderr
