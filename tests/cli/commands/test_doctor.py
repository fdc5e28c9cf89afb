"""`recordpublisher doctor` as a command. What each check finds is tested in `tests/cli/doctor`."""

import json

import pytest
import typer

from recordpublisher import Properties
from recordpublisher.cli.commands.doctor import doctor
from recordpublisher.cli.doctor.streams import StreamUse, stream_use_of
from recordpublisher.local import serve_in_thread

from processes.command_line import several_commands


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """What each command did, by its name."""
    job = tmp_path_factory.mktemp("job") / "job.properties"
    job.write_text("flink.streams=orders\nflink.sink=kinesis\nflink.sink.kinesis.stream=copy\n")
    query = job.with_name("query.properties")
    query.write_text(f"stream=orders\nmaxTasks=2\nmetadataLocation={job.parent}/claims\n")
    reach = job.with_name("reach.properties")
    reach.write_text("flink.stream.initpos=LATEST\n")
    commands = {
        "stream with a file": f"doctor orders --properties {reach}",
        "job with another file": f"doctor {job} --properties {reach}",
        "job with a stream": f"doctor {job} --stream orders",
        "stream": "doctor --stream orders",
        "job": f"doctor {job}",
        "unknown": "doctor --stream order",
        "region": "doctor --stream orders --region mars",
        "nothing": "doctor",
        "Spark": f"doctor {query}",
        "Spark with a wrong place": f"doctor {query} -p metadataLocation=hdfs://host/claims",
    }
    with serve_in_thread(streams={"orders": 1, "copy": 1}) as served:
        results = several_commands(served, *map(str.split, commands.values()))
    return dict(zip(commands, results, strict=True))


def checks(result):
    """The verdict of each check by its name."""
    rows = [[part.strip() for part in line.split("  ") if part.strip()] for line in result.stdout.splitlines()]
    return {name: verdict for verdict, name, _ in rows}


def test_a_stream_is_checked_for_reading_and_writing(done):
    assert (done["stream"].returncode, done["stream"].stderr) == (0, "")
    assert checks(done["stream"])["orders: kinesis:GetRecords"] == "ok"
    assert checks(done["stream"])["orders: kinesis:PutRecords"] == "ok"


def test_a_stream_is_checked_with_the_properties_of_a_file(done):
    assert (done["stream with a file"].returncode, done["stream with a file"].stderr) == (0, "")
    assert checks(done["stream with a file"])["orders: kinesis:PutRecords"] == "ok"


def test_a_file_for_a_stream_is_refused_with_a_job_and_named_if_a_stream_is_given_with_a_job(done):
    assert "option '--properties' cannot be combined with" in done["job with another file"].stderr
    assert "for a stream alone, write --properties" in done["job with a stream"].stderr


def test_a_job_is_checked_for_what_it_does(done):
    found = checks(done["job"])

    assert (done["job"].returncode, done["job"].stderr) == (0, "")
    assert found["orders: kinesis:GetRecords"] == found["copy: kinesis:PutRecords"] == found["sink"] == "ok"
    assert "orders: kinesis:PutRecords" not in found
    assert "copy: kinesis:GetRecords" not in found


def test_a_problem_is_exit_code_1(done):
    assert done["unknown"].returncode == 1
    assert checks(done["unknown"])["order: kinesis:ListShards"] == "PROBLEM"


def test_a_wrong_setting_is_a_line_too_and_ends_the_checks(done):
    assert (done["region"].returncode, done["region"].stderr) == (1, "")
    assert checks(done["region"])["region"] == "PROBLEM"
    assert list(checks(done["region"]).values()).count("PROBLEM") == 1
    assert not any(name.startswith("orders") for name in checks(done["region"]))


ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/Orders/consumer/billing:1"


@pytest.mark.parametrize(("registration", "publisher"), [("NONE", "EFO"), ("EAGER", "EFO"), ("EAGER", "efo")])
def test_a_job_uses_the_consumer_whose_arn_it_is_given(registration, publisher):
    given = {"flink.stream.efo.registration": registration, "flink.stream.efo.consumerarn.Orders": ARN}
    job = Properties({"flink.stream.recordpublisher": publisher, "flink.stream.efo.consumername": "billing", **given})

    assert stream_use_of(job, "Orders") == StreamUse(consumer="billing", consumer_arn=ARN)


def test_without_a_valid_name_of_the_consumer_only_the_setting_is_a_problem():
    assert stream_use_of(Properties({"flink.stream.recordpublisher": "EFO"}), "orders") == StreamUse()


def test_the_options_of_a_query_on_spark_are_checked_with_its_stream_and_the_place_of_its_claims(done):
    found = checks(done["Spark"])

    assert (done["Spark"].returncode, done["Spark"].stderr) == (0, "")
    assert found["options"] == found["properties"] == found["orders: kinesis:GetRecords"] == found["claims"] == "ok"
    assert "claims will be created" in done["Spark"].stdout
    assert "orders: kinesis:PutRecords" not in found


def test_a_wrong_option_of_a_query_on_spark_is_a_line(done):
    assert (done["Spark with a wrong place"].returncode, done["Spark with a wrong place"].stderr) == (1, "")
    assert checks(done["Spark with a wrong place"]) == {"options": "PROBLEM"}


def test_a_job_or_a_stream_is_needed(done):
    assert done["nothing"].returncode == 2
    assert "'JOB' is required. Valid: the properties of a job, or --stream" in done["nothing"].stderr


def test_json_has_a_line_for_each_check_and_a_stream_may_stand_for_a_job(capsys, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(typer.Exit):
        doctor(job="orders", as_json=True, region="eu-west-1", endpoint="http://127.0.0.1:1")

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"name": "region", "verdict": "ok", "words": "eu-west-1"} in lines
    assert {line["name"]: line["verdict"] for line in lines}["connection"] == "PROBLEM"
