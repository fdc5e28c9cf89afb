"""The writers without a running Spark: pickled for the tasks, and committed with the tasks' messages."""

from __future__ import annotations

import logging
import pickle

import pytest
from pyspark.sql.types import StringType, StructType

from recordpublisher.plugins.spark.python_worker import LOG_VARIABLE
from recordpublisher.plugins.spark.write_options import WriteOptions
from recordpublisher.plugins.spark.writer import KinesisBatchWriter, KinesisStreamWriter, TaskCommitMessage, TaskFigures

OPTIONS = WriteOptions.parse({"stream": "out"})
SCHEMA = StructType().add("data", StringType())


def written(given_up=0):
    return TaskCommitMessage(TaskFigures(0, 0, 10, 1000, 2, 1, 1, given_up, 3, 0.5))


@pytest.fixture
def log(caplog, monkeypatch):
    """The logged lines as pairs of level and text, at the log level of a job."""
    logger = logging.getLogger("recordpublisher")
    before = logger.level
    monkeypatch.setenv(LOG_VARIABLE, "INFO")
    yield lambda: [(record.levelname, record.getMessage()) for record in caplog.records]
    logger.setLevel(before)


def test_a_committed_batch_is_logged_as_a_warning_if_records_were_given_up(log):
    writer = KinesisStreamWriter(OPTIONS, SCHEMA)
    writer.commit([written(), written()], 7)
    writer.commit([written(given_up=1)], 8)
    (first, line), (second, warning) = log()
    assert (first, second) == ("INFO", "WARNING")
    assert line.startswith("batch 7: 20 records and 2000 bytes put by 2 tasks")
    assert "1 given up" in warning


def test_the_line_of_a_failed_batch_says_what_is_in_the_stream(log):
    KinesisStreamWriter(OPTIONS, SCHEMA).abort([written(), None], 7)
    KinesisBatchWriter(OPTIONS, SCHEMA, overwrite=False).abort([None])
    assert [level for level, _ in log()] == ["WARNING", "WARNING"]
    assert log()[0][1].startswith("batch 7 failed: 10 records of 1 finished task are in the stream")


def test_all_attempts_of_a_batch_job_share_one_run_id():
    writer = KinesisBatchWriter(OPTIONS, SCHEMA, overwrite=False)
    assert pickle.loads(pickle.dumps(writer))._run == writer._run
    assert KinesisBatchWriter(OPTIONS, SCHEMA, overwrite=False)._run != writer._run
