"""The level of the log is checked like any other setting."""

from __future__ import annotations

import logging

import pytest

from recordpublisher.plugins.spark.python_worker import LOG_VARIABLE, log_to_stderr
from recordpublisher.publishers.errors import ConfigurationError


@pytest.fixture(autouse=True)
def _kept():
    ours = logging.getLogger("recordpublisher")
    before = ours.level
    yield
    ours.setLevel(before)


def test_the_level_is_taken_from_the_environment(monkeypatch):
    monkeypatch.setenv(LOG_VARIABLE, "info")
    log_to_stderr()
    assert logging.getLogger("recordpublisher").level == logging.INFO


def test_c2_a_level_that_is_none_names_the_variable_and_what_is_valid(monkeypatch):
    monkeypatch.setenv(LOG_VARIABLE, "verbose")
    with pytest.raises(ConfigurationError, match=f"{LOG_VARIABLE}.*'verbose'.*DEBUG, INFO"):
        log_to_stderr()
