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
    _install(site)
    return site


def _install(site):
    (site / "shelf.py").write_text(PLUGIN)
    (site / "shelf_sink.py").write_text(SINK)
    info = site / "shelf-0.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text("[recordpublisher]\nmine = shelf\n")
    (site / "job.properties").write_text(JOB)
    (site / "state").mkdir()


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """The plugin of `site`, whose sink needs a package that is missing."""
    broken = tmp_path_factory.mktemp("broken")
    _install(broken)
    (broken / "shelf_sink.py").write_text(f"import a_package_that_is_not_there\n{SINK}")
    (broken / "other.properties").write_text(JOB.replace("flink.sink=SHELF", "flink.sink=MEMORY"))
    return broken


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


class TestAPluginThatCannotBeImported:
    """Its properties are not known: no command may take this for a list of all properties, or say that nothing declares them."""

    CAUSE = (
        "the sink 'SHELF' of shelf 0.3 cannot be imported from shelf_sink:Shelf: "
        "ModuleNotFoundError: No module named 'a_package_that_is_not_there'"
    )
    NOTE = "recordpublisher: properties of this plugin are not listed: "

    @pytest.mark.parametrize("words", [[], ["--json"], ["sink.jsonl"], ["sink.jsonl", "--json"]])
    def test_properties_says_which_are_not_listed(self, broken, words):
        done = command("properties", *words, path=broken)

        assert done.returncode == 0
        assert "flink.sink.jsonl.path" in done.stdout
        (line,) = done.stderr.splitlines()
        assert line.startswith(self.NOTE + self.CAUSE)

    def test_properties_that_finds_nothing_names_the_cause(self, broken):
        done = command("properties", "flink.sink.shelf.rows", path=broken)

        assert (done.returncode, done.stdout) == (1, "")
        note, error = done.stderr.splitlines()
        assert note.startswith(self.NOTE + self.CAUSE)
        assert error == (
            "recordpublisher: no property has 'flink.sink.shelf.rows' in its key, group or meaning, except perhaps one of a plugin "
            "that was not imported"
        )

    def test_properties_says_that_a_whole_plugin_was_not_loaded(self, tmp_path):
        _install(tmp_path)
        (tmp_path / "shelf.py").write_text("import a_package_that_is_not_there")

        done = command("properties", "shelf", path=tmp_path)
        blocked = command("properties", "shelf", path=tmp_path, RECORDPUBLISHER_BLOCK_PLUGINS="shelf")

        reason = "plugin 'mine' of shelf 0.3 was not loaded: "
        assert done.stderr.startswith(f"{self.NOTE}{reason}ModuleNotFoundError")
        assert blocked.stderr.startswith(f"{self.NOTE}{reason}named in RECORDPUBLISHER_BLOCK_PLUGINS\n")

    @pytest.mark.parametrize("words", [["lag"], ["positions", "show"], ["doctor"], ["run"]], ids=" ".join)
    @pytest.mark.parametrize("job", ["job.properties", "other.properties"])
    def test_a_job_is_not_told_that_nothing_declares_its_keys(self, broken, words, job):
        done = command(*words, job, path=broken, folder=broken)

        said = done.stdout + done.stderr
        assert "nothing that is installed declares it" not in said
        if words == ["run"] and job == "job.properties":
            assert self.CAUSE in said
        if job == "other.properties":
            assert (
                "unknown property 'flink.sink.shelf.file': a plugin that was not imported may declare it "
                "('recordpublisher plugins' lists what was not imported)"
            ) in said

    def test_a_key_that_may_be_of_such_a_plugin_is_not_only_a_misspelt_one(self, broken):
        done = command("lag", "other.properties", "-p", "flink.streems=x", path=broken, folder=broken)

        assert done.returncode == 2
        assert (
            "'flink.streems' is not accepted: there is no such property; did you mean 'flink.streams'? "
            "A plugin that was not imported may declare it ('recordpublisher plugins' lists what was not imported)"
        ) in done.stderr
