"""Warnings of a query as its progress shows them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recordpublisher.plugins.spark.options.other_connectors import OptionWarnings
from recordpublisher.plugins.spark.source.batch_planner import QueryWarnings
from recordpublisher.plugins.spark.source.query_start import RetentionLeft

from fakes.spark.queries import options, query
from fakes.spark.simulated_kinesis import SimulatedKinesis

NEAR, FAR = RetentionLeft("s/a", 10, 100), RetentionLeft("s/a", 90, 100)


@pytest.fixture
def warnings(tmp_path):
    return QueryWarnings(replace(options(tmp_path), warnings=OptionWarnings(("unknown option",), is_told=True)))


def test_warnings_about_options_come_first_and_are_not_logged_again(warnings, caplog):
    assert (warnings.texts, caplog.text) == (["unknown option"], "")
    warnings.dropped_streams({"clicks"})
    assert warnings.texts[1].startswith("no longer read, and their positions are forgotten: clicks")
    assert caplog.text.count("clicks") == 1


def test_a_warning_that_is_no_longer_true_goes(warnings):
    warnings.retention_left(NEAR)
    assert len(warnings.texts) == 2
    warnings.retention_left(FAR)
    assert warnings.texts == ["unknown option"]


def test_the_progress_has_warnings_only_where_there_are_some(tmp_path):
    kinesis = SimulatedKinesis()
    kinesis.add("a", [1])
    for texts in ((), ("unknown option",)):
        job = query(kinesis, tmp_path / str(len(texts)))
        job.options = replace(job.options, warnings=OptionWarnings(texts))
        job.restart()
        job.batch()
        assert job.planner.figures().get("warnings") == (list(texts) or None)
