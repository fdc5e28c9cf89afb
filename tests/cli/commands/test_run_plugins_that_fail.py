"""`run` and `doctor` of a job whose plugin fails when it is made: the message names the plugin."""

import pytest

from processes.command_line import command

PLUGIN = """
import asyncio
import sys

import recordpublisher as rp


class Made(rp.RecordPublisherFactory):
    def __init__(self, properties):
        raise ValueError("no such thing")

    async def create(self, shard, starting_position, metrics):
        pass

    async def discover(self, stream):
        return []


class Abstract(rp.Sink):
    def __init__(self, properties):
        pass


class Exiting(rp.Sink):
    def __init__(self, properties):
        sys.exit(2)

    async def write(self, batch):
        pass


class Stopping(Exiting):
    def __init__(self, properties):
        pass

    async def write(self, batch):
        sys.exit(3)


class Files(Made):
    def __init__(self, properties):
        pass

    async def discover(self, stream):
        return [rp.Shard(stream, "a")]

    async def create(self, shard, starting_position, metrics):
        return File(shard)


class File(rp.RecordPublisher):
    def __init__(self, shard):
        self.shard = shard

    async def run(self, consumer):
        if self.shard.stream == "exits":
            sys.exit(4)
        record, last = rp.UserRecord(b"", "1", 1.0, "key"), rp.SequenceNumber("1")
        await consumer(rp.RecordBatch(self.shard, [record], read_position=last, raw_count=1, raw_bytes=2))
        await asyncio.sleep(100)


class Refusing(rp.Sink):
    def __init__(self, properties):
        raise rp.ConfigurationError("bad.path", valid="a path")

    async def write(self, batch):
        pass


def text(properties):
    return {}["x"]


@rp.hookimpl
def recordpublisher_register_publishers(registry):
    registry.add("bad-publisher", Made)
    registry.add("files", Files)


@rp.hookimpl
def recordpublisher_register_sinks(registry):
    registry.add("bad-sink", Abstract)
    registry.add("refusing", Refusing)
    registry.add("exiting", Exiting)
    registry.add("stopping", Stopping)


@rp.hookimpl
def recordpublisher_register_deserializers(registry):
    registry.add("bad-text", text)
"""
MADE = "the publisher 'bad-publisher' of bad 0.1.0 could not be made: ValueError: no such thing"
ABSTRACT = "the sink 'bad-sink' of bad 0.1.0 could not be made: TypeError: Can't instantiate abstract class Abstract"
DESERIALIZER = "the deserializer 'bad-text' of bad 0.1.0 could not be made: KeyError: 'x'"
DEAD = ("flink.deserializer.error=DEAD_LETTER", "flink.deadletter.sink=bad-sink")


@pytest.fixture
def site(tmp_path):
    (tmp_path / "bad.py").write_text(PLUGIN)
    info = tmp_path / "bad-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[recordpublisher]\nmine = bad\n")
    return tmp_path


@pytest.mark.parametrize("name", ["run", "doctor"])
@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["flink.stream.recordpublisher=bad-publisher"], MADE),
        (["flink.sink=bad-sink"], ABSTRACT),
        (["flink.deserializer=bad-text"], DESERIALIZER),
        (DEAD, ABSTRACT),
        (["flink.sink=refusing"], "property 'bad.path' is required. Valid: a path"),
    ],
)
def test_the_message_names_what_could_not_be_made_and_its_package(site, name, lines, words):
    job = site / "job.properties"
    own = {"flink.streams": "arn:aws:kinesis:eu-west-1:123456789012:stream/orders", "flink.sink": "memory"}
    own |= {"aws.endpoint": "http://127.0.0.1:9", "flink.list.shards.maxretries": "0"} | dict(
        each.split("=") for each in lines
    )
    job.write_text("\n".join("=".join(pair) for pair in own.items()))
    done = command(name, str(job), path=site)

    assert done.returncode != 0
    assert words in done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("could not be made") == ("could not be made" in words)


@pytest.mark.parametrize(
    ("stream", "sink", "function", "code"),
    [
        ("books", "stopping", "Stopping.write", 3),
        ("exits", "memory", "File.run", 4),
        ("books", "exiting", "Exiting.__init__", 2),
    ],
)
def test_a_plugin_that_exits_is_told_with_its_function_and_not_as_an_import(site, stream, sink, function, code):
    job = site / "job.properties"
    lines = [f"flink.streams={stream}", f"flink.sink={sink}", "flink.stream.recordpublisher=files"]
    job.write_text("\n".join([*lines, "flink.stream.initpos=TRIM_HORIZON"]))
    done = command("run", str(job), path=site)

    assert done.returncode != 0
    called = f"sys.exit({code})"
    line = next(number for number, text in enumerate(PLUGIN.splitlines(), 1) if called in text)
    last = done.stderr.splitlines()[-1]
    assert f"`{function}` ({site / 'bad.py'}, line {line}) called {called}, which would end the process" in last
    assert "__main__" not in done.stderr
