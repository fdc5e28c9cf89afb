"""C2: each command knows the properties that a job's plugins declare, also those of a class that is imported at its first use."""

import pytest

from processes.command_line import command

PLUGIN = """
import recordpublisher as rp

@rp.hookimpl
def recordpublisher_register_sinks(registry):
    registry.add("SHELF", "shelf_sink:Shelf")
"""
SINK = """
import recordpublisher as rp
from recordpublisher.publishers.properties import integer, text

FILE = text("flink.sink.shelf.file", "The file of the rows.", group="Shelf")
ROWS = integer("flink.sink.shelf.rows", "Rows in a write.", 100, 1, group="Shelf")

class Shelf(rp.Sink):
    def __init__(self, properties):
        pass

    async def write(self, batch): ...
"""
JOB = """
flink.streams=orders
flink.sink=SHELF
flink.sink.shelf.file=shelf.db
flink.state.uri=state
flink.job.max.outage=1ms
flink.list.shards.maxretries=0
aws.region=eu-west-1
aws.endpoint=http://127.0.0.1:1
aws.credentials.provider=BASIC
aws.credentials.provider.basic.accesskeyid=a
aws.credentials.provider.basic.secretkey=s
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    site = tmp_path_factory.mktemp("site")
    (site / "shelf.py").write_text(PLUGIN)
    (site / "shelf_sink.py").write_text(SINK)
    info = site / "shelf-0.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text("[recordpublisher]\nmine = shelf\n")
    (site / "job.properties").write_text(JOB)
    (site / "state").mkdir()
    return site


@pytest.mark.parametrize(
    "words",
    [
        ["positions", "show", "job.properties"],
        ["positions", "reset", "job.properties", "--to", "LATEST"],
        ["leftovers", "job.properties"],
        ["group", "show", "job.properties"],
        ["lag", "job.properties"],
        ["describe", "orders", "--properties", "job.properties"],
        ["tail", "orders", "--properties", "job.properties", "--shard", "shardId-000000000000", "--no-follow"],
        ["doctor", "job.properties"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_property_of_a_plugin_is_known_and_its_value_is_checked(site, words):
    done = command(*words, path=site, folder=site)
    refused = command(*words, "-p", "flink.sink.shelf.rows=0", path=site, folder=site)

    assert "unknown property" not in done.stdout + done.stderr
    assert "flink.sink.shelf.rows" not in done.stdout + done.stderr
    assert refused.returncode in (1, 2)
    assert "'flink.sink.shelf.rows' is '0'. Valid: a whole number of at least 1" in refused.stdout + refused.stderr


def test_a_setting_of_a_sink_that_is_not_chosen_is_named_with_its_reader(site):
    other = ["-p", "flink.sink=jsonl", "-p", "flink.sink.jsonl.path=out", "-p", "flink.sink.kinesis.ordering=PER_KEY"]
    done = command("doctor", "job.properties", *other, path=site, folder=site)
    (line,) = [line for line in done.stdout.splitlines() if line.split()[1] == "properties"]

    assert line.startswith("ok")
    assert "flink.sink.shelf.file has no effect: the sink is jsonl; only SHELF reads it" in line
    assert "flink.sink.kinesis.ordering has no effect: the sink is jsonl; only kinesis reads it" in line
    assert "unknown property" not in done.stdout + done.stderr
