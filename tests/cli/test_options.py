"""Options that several commands share."""

import sys

import pytest
from typer.testing import CliRunner

import recordpublisher as rp
from recordpublisher.cli.app import app
from recordpublisher.cli.options import PropertyOptions, read_job_or_stream
from recordpublisher.plugins.spark.options.spark_options import is_query
from recordpublisher.publishers.properties.job_properties import DEAD_LETTER_SINK


def test_options_override_pairs_and_pairs_the_file(tmp_path):
    job = tmp_path / "job.properties"
    job.write_text("aws.region=of-the-file\naws.endpoint=http://of-the-file\nflink.stream.initpos=LATEST\n")

    found = PropertyOptions(["aws.region=of-a-pair", "aws.endpoint=http://of-a-pair"], region="of-an-option").read(job)

    assert dict(found) == {
        "aws.region": "of-an-option",
        "aws.endpoint": "http://of-a-pair",
        "flink.stream.initpos": "LATEST",
    }


def test_a_pair_without_a_value_takes_back_what_the_file_has(tmp_path):
    job = tmp_path / "job.properties"
    job.write_text("aws.region=of-the-file\nflink.metrics.exporters=prometheus\n")

    assert dict(PropertyOptions(["flink.metrics.exporters="]).read(job)) == {"aws.region": "of-the-file"}


def test_the_current_folder_is_searched_for_what_a_file_names(tmp_path, monkeypatch):
    """The check of a plugin's property may import it, as in `tail` with `--properties`."""
    job = tmp_path / "job.properties"
    job.write_text("aws.region=eu-west-1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    PropertyOptions().read(job)

    assert sys.path[-1] == str(tmp_path)


def test_a_profile_brings_its_credentials():
    assert dict(PropertyOptions(endpoint="http://there", profile="test").read()) == {
        "aws.endpoint": "http://there",
        "aws.credentials.provider": "PROFILE",
        "aws.credentials.provider.profile.name": "test",
    }


def test_a_file_with_the_tables_of_toml_is_no_properties_file(tmp_path):
    job = tmp_path / "job.toml"
    job.write_text('[flink]\nstreams = "orders"\n\n[flink.sink.parquet]\npath = "out"\n')

    with pytest.raises(rp.ConfigurationError, match=r"its first key is '\[flink\]'. Valid: a Java properties file"):
        PropertyOptions().read(job)


def test_a_file_without_a_property_is_no_properties_file(tmp_path):
    records = tmp_path / "orders.txt"
    records.write_text("order 1\n")

    with pytest.raises(rp.ConfigurationError, match=r"orders.txt.*no property of this package.*order.*properties file"):
        PropertyOptions().read(records)


@pytest.mark.parametrize("given", ["pq.propertis", "pq.propperties", "jobs/pq.conf"])
def test_a_misspelt_file_is_not_taken_for_a_stream(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(rp.ConfigurationError, match="No such file"):
        read_job_or_stream(given, None, PropertyOptions())


@pytest.mark.parametrize("given", ["orders", "orders.v1", "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"])
def test_a_name_or_an_arn_is_a_stream(given):
    assert read_job_or_stream(given, None, PropertyOptions())[0] == [given]


def test_the_file_that_was_probably_meant_is_named(tmp_path):
    (tmp_path / "pq.properties").write_text("flink.streams=orders\n")

    with pytest.raises(rp.ConfigurationError, match=r"No such file or directory; did you mean '.*pq.properties'\?"):
        PropertyOptions().read(tmp_path / "pq.propertis")


PROGRAM = """
import contextlib
import recordpublisher as rp
from fakes.memory_store import MemoryStore

class Rows(rp.MemorySink):
    async def stored_positions(self): return []

def made(streams="orders", **given): return rp.DataFetcher(streams, **{"sink": rp.MemorySink(), "region": "eu-west-1", **given})

@contextlib.asynccontextmanager
async def job(): yield made({"orders": "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"}.values(), state_uri="state")
def in_a_folder(): return made(state_store=rp.FolderStore("folder"))
def of_a_function(): return made(lambda: ["clicks", "orders"])
def in_memory(): return made(state_store=MemoryStore())
def with_rows(): return made(sink=Rows())
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    (tmp_path / "shop_of_options.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def test_the_job_of_a_program_is_known_by_its_fetcher_and_the_options_are_above_it(program):
    streams, found = read_job_or_stream(
        "shop_of_options:job", None, PropertyOptions(["aws.region=of-a-pair"], endpoint="http://there")
    )

    assert streams == ["arn:aws:kinesis:eu-west-1:123456789012:stream/orders"]
    assert [found[key] for key in ("aws.region", "aws.endpoint", "flink.state.uri")] == [
        "of-a-pair",
        "http://there",
        "state",
    ]


def test_a_function_of_streams_and_a_folder_of_a_program_are_found_too(program):
    assert PropertyOptions().read("shop_of_options:in_a_folder")["flink.state.uri"] == "folder"
    assert PropertyOptions().read("shop_of_options:of_a_function")["flink.streams"] == "clicks,orders"


@pytest.mark.parametrize(("name", "valid"), [("in_memory", "flink.state.uri"), ("with_rows", "flink.sink")])
def test_positions_that_only_an_object_of_the_program_knows_are_refused(program, name, valid):
    with pytest.raises(rp.ConfigurationError, match=f"with {valid} instead"):
        PropertyOptions().read(f"shop_of_options:{name}")


SPARK_FILES = [
    "streamName=orders\nregion=us-east-1\n",
    "stream=orders\nmetadataLocation=/claims\naws.region=us-east-1\n",
    "metadataRoot=/claims\naws.region=us-east-1\n",
    "kinesis.streamName=orders\nkinesis.region=us-east-1\n",
]


@pytest.mark.parametrize("text", SPARK_FILES)
@pytest.mark.parametrize("command", ["lag", "positions show", "dashboard", "run", "group show"])
def test_a_command_for_jobs_says_what_there_is_for_a_query_on_spark(tmp_path, text, command):
    path = tmp_path / "query.properties"
    path.write_text(text)
    result = CliRunner().invoke(app, [*command.split(), str(path)])
    assert result.exit_code == 2
    words = (
        "it has the options of a Spark query, whose positions are in its checkpoint, and its lag in query.lastProgress"
    )
    valid = f"the properties of a job, with flink.streams; to check a query: recordpublisher doctor {path}"
    assert result.output == f"recordpublisher: setting 'file' is '{path}': {words}. Valid: {valid}\n"


@pytest.mark.parametrize("text", SPARK_FILES)
def test_doctor_and_dead_letters_take_the_options_of_a_query(tmp_path, text):
    path = tmp_path / "query.properties"
    path.write_text(text)
    assert is_query(PropertyOptions().read_job_or_query(path))
    path.write_text(f"{text}flink.deadletter.sink=jsonl\n")
    assert PropertyOptions().read_job(path).is_set(DEAD_LETTER_SINK)


def test_a_job_that_has_an_option_of_spark_by_chance_is_a_job(tmp_path):
    path = tmp_path / "job.properties"
    path.write_text("flink.streams=orders\ntopic=orders\n")
    assert PropertyOptions().read_job(path)["topic"] == "orders"


@pytest.mark.parametrize("text", ['{"streamName": "orders"}', '{\n  "flink.streams": "orders"\n}'])
def test_json_is_named(tmp_path, text):
    path = tmp_path / "options.json"
    path.write_text(text)
    with pytest.raises(
        rp.ConfigurationError,
        match=r"options.json': it is JSON. Valid: a Java properties file .*, one key=value a line",
    ):
        PropertyOptions().read(path)


@pytest.mark.parametrize("job", ["job.properties", "shop:job", "jobs/orders"])
def test_a_job_before_the_command_is_told_where_it_goes(job):
    done = CliRunner().invoke(app, ["dead-letters", job])

    assert done.exit_code == 2
    assert "A job comes after the command: " in done.output
    assert f"dead-letters list {job}" in done.output
