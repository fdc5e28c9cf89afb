"""What Spark's driver gets of an error."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from recordpublisher.plugins.spark.process import driver_errors
from recordpublisher.plugins.spark.process.driver_errors import HIDE, one_sentence
from recordpublisher.publishers.errors import ConfigurationError


@pytest.fixture
def in_a_process_of_spark(monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=SimpleNamespace(name="pyspark.daemon")))
    monkeypatch.setenv(HIDE, "")


@one_sentence()
def wrong():
    raise ConfigurationError("stream", None)


@one_sentence()
def broken():
    raise ValueError("a mistake of ours")


def test_an_error_of_ours_is_its_sentence_and_its_traceback_is_in_the_log(in_a_process_of_spark, caplog):
    caplog.set_level("INFO")
    with pytest.raises(ConfigurationError):
        wrong()
    assert os.environ[HIDE] == "1"
    assert "Traceback" in caplog.text


def test_other_errors_keep_their_traceback(in_a_process_of_spark):
    with pytest.raises(ValueError, match="a mistake of ours"):
        broken()
    assert os.environ[HIDE] == ""


def test_a_users_own_process_is_left_alone(monkeypatch):
    monkeypatch.setenv(HIDE, "")
    with pytest.raises(ConfigurationError):
        wrong()
    assert os.environ[HIDE] == ""
    assert not driver_errors._is_process_of_spark()
