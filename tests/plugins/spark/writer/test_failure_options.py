"""Two options decide what happens to rows that cannot be put; they are checked on the driver (C2, S7)."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import StringType, StructType

from recordpublisher.plugins.sinks.files.jsonl_sink import JsonlSink
from recordpublisher.plugins.spark.write_options import WriteOptions, check_folder, dead_letter_sink
from recordpublisher.plugins.spark.writer import KinesisStreamWriter
from recordpublisher.publishers.errors import ConfigurationError

SCHEMA = StructType().add("data", StringType())
SINK = "flink.deadletter.sink"


def parsed(**more):
    return WriteOptions.parse({"stream": "out", **{key.lower(): value for key, value in more.items()}})


def test_by_default_a_bad_row_fails_the_task():
    assert parsed().on_failure == "FAIL"
    assert dead_letter_sink(parsed().properties) is None
    assert parsed(onFailure="skip").on_failure == "SKIP"


def test_a_dead_letter_folder_stands_for_a_jsonl_sink(tmp_path):
    short = parsed(deadLetters=str(tmp_path))
    long = parsed(onFailure="DEAD_LETTER", **{SINK: "jsonl", "flink.deadletter.jsonl.path": str(tmp_path)})
    for options in (short, long):
        assert options.on_failure == "DEAD_LETTER"
        made = dead_letter_sink(pickle.loads(pickle.dumps(options)).properties)()
        assert isinstance(made, JsonlSink)
        assert made._path == str(tmp_path)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"onFailure": "IGNORE"}, "'onFailure' is 'IGNORE'. Valid: FAIL, SKIP, DEAD_LETTER"),
        (
            {"onFailure": "DEAD_LETTER"},
            "'onFailure' is 'DEAD_LETTER': .*. Valid: deadLetters=<folder> with it",
        ),
        ({"onFailure": "DEAD_LETTER", SINK: "jsonl"}, r"'flink\.deadletter\.jsonl\.path' is required"),
        ({"onFailure": "DEAD_LETTER", SINK: "sqs"}, f"'{SINK}' is 'sqs'.*jsonl"),
        (
            {"onFailure": "SKIP", "deadLetters": "/f"},
            "'onFailure=SKIP' cannot be combined with 'deadLetters'",
        ),
        (
            {"onFailure": "FAIL", "deadLetters": "/f"},
            "'onFailure=FAIL' cannot be combined with 'deadLetters'",
        ),
        ({SINK: "sql", "deadLetters": "/f"}, f"'{SINK}' cannot be combined with 'deadLetters'"),
        ({"deadLetters": "s3://b/p"}, f"'deadLetters' is 's3://b/p'. Valid: a folder.*{SINK}"),
    ],
)
def test_c2_contradicting_options_are_named(given, words):
    with pytest.raises(ConfigurationError, match=words):
        parsed(**given)


def test_c2_a_folder_that_cannot_be_created_fails_on_the_driver(tmp_path):
    (tmp_path / "file").write_text("in the way")
    options = parsed(deadLetters=str(tmp_path / "file" / "letters"))
    with pytest.raises(ConfigurationError, match=r"'deadLetters' is .*. Valid: a folder that every executor can"):
        KinesisStreamWriter(options, SCHEMA).check()


@pytest.mark.parametrize("given", [{}, {"onFailure": "FAIL"}])
def test_the_sinks_own_policy_does_not_lose_rows_of_a_query_that_fails_for_them(given):
    with pytest.raises(
        ConfigurationError,
        match=r"'flink.sink.kinesis.failonerror=false' cannot be combined with 'onFailure=FAIL'.*onFailure=SKIP",
    ):
        parsed(**given, **{"flink.sink.kinesis.failonerror": "false"})
    assert parsed(onFailure="SKIP", **{"flink.sink.kinesis.failonerror": "false"}).on_failure == "SKIP"


@pytest.mark.parametrize("form", ["~/letters", "file:HOME/letters", "file://HOME/letters"])
def test_the_folder_that_the_driver_checks_is_that_of_the_tasks(tmp_path, monkeypatch, form):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    check_folder(parsed(deadLetters=form.replace("HOME", str(tmp_path / "home"))).properties)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["home", "home/letters"]
