"""What Spark's driver gets of an error."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from recordpublisher.plugins.spark.python_worker import (
    HIDE_TRACEBACK_VARIABLE,
    errors_as_one_sentence,
    is_process_of_spark,
)
from recordpublisher.publishers.errors import ConfigurationError, PluginError, RecordPublisherError


@pytest.fixture
def in_a_process_of_spark(monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=SimpleNamespace(name="pyspark.daemon")))
    monkeypatch.setenv(HIDE_TRACEBACK_VARIABLE, "")


@errors_as_one_sentence()
def wrong():
    raise ConfigurationError("stream", None)


@errors_as_one_sentence()
def broken():
    raise ValueError("a mistake of ours")


@errors_as_one_sentence()
def of_a_plugin():
    try:
        int("a mistake of theirs")
    except ValueError as error:
        raise PluginError("the publisher has failed") from error


def test_an_error_of_ours_is_its_sentence_and_its_traceback_is_in_the_log(in_a_process_of_spark, caplog):
    caplog.set_level("INFO")
    with pytest.raises(ConfigurationError):
        wrong()
    assert os.environ[HIDE_TRACEBACK_VARIABLE] == "1"
    assert "Traceback" in caplog.text


def test_the_traceback_of_code_of_others_is_logged_for_who_logs_no_info(in_a_process_of_spark, caplog):
    """As a plugin's publisher that fails in a task."""
    caplog.set_level("WARNING")
    for call in (wrong, of_a_plugin):
        with pytest.raises(RecordPublisherError):
            call()
    assert "a mistake of theirs" in caplog.text
    assert len(caplog.records) == 1


def test_other_errors_keep_their_traceback(in_a_process_of_spark):
    with pytest.raises(ValueError, match="a mistake of ours"):
        broken()
    assert os.environ[HIDE_TRACEBACK_VARIABLE] == ""


def test_a_users_own_process_is_left_alone(monkeypatch):
    monkeypatch.setenv(HIDE_TRACEBACK_VARIABLE, "")
    with pytest.raises(ConfigurationError):
        wrong()
    assert os.environ[HIDE_TRACEBACK_VARIABLE] == ""
    assert not is_process_of_spark()
