"""A query whose streams differ from those of its checkpoint."""

from __future__ import annotations

import logging

import pytest

from recordpublisher.plugins.spark.options.spark_options import SparkOptions
from recordpublisher.plugins.spark.source.query_start import dropped_streams
from recordpublisher.plugins.stores.spark_read_claims import read_claim_store_of, run_without_loop
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties

from fakes.spark.queries import options
from fakes.spark.simulated_kinesis import SimulatedKinesis
from fakes.spark.simulated_query import SimulatedQuery

ARN = "arn:aws:kinesis:eu-west-1:1:stream/clicks"


def test_streams_may_come_and_go():
    assert dropped_streams([], ["orders"]) == set()
    assert dropped_streams(["orders"], ["orders", "more"]) == set()
    assert dropped_streams(["clicks"], [ARN]) == set()
    assert dropped_streams(["clicks", "orders"], ["orders"]) == {"clicks"}


def test_c2_a_checkpoint_without_any_of_the_streams_is_refused():
    words = r"'stream' is 'orders': the checkpoint of this query has positions of clicks.*Valid: streams with clicks among them"
    with pytest.raises(ConfigurationError, match=words):
        dropped_streams(["clicks"], ["orders"])


def test_a_query_without_its_streams_ends_before_its_first_batch_and_keeps_its_positions(tmp_path):
    kinesis = SimulatedKinesis()
    kinesis.add("a", [1, 2, 3])
    job = SimulatedQuery(kinesis, read_claim_store_of(str(tmp_path), Properties(), run_without_loop), options(tmp_path))
    job.run()
    given = options(tmp_path)
    job.options = SparkOptions(("another",), given.metadata_location, given.properties)
    job.restart()
    with pytest.raises(ConfigurationError, match="has positions of s"):
        job.run()
    job.options = given
    job.restart()
    job.run()
    assert sorted(job.delivered()) == sorted(job.expected())


def test_a_stream_that_is_dropped_is_named_once(tmp_path, caplog):
    kinesis = SimulatedKinesis()
    kinesis.add("a", [1])
    job = SimulatedQuery(kinesis, read_claim_store_of(str(tmp_path), Properties(), run_without_loop), options(tmp_path))
    job.run()
    shards = job.log[-1]["shards"]
    shards["gone/a"] = {**shards["s/a"], "stream": "gone"}
    with caplog.at_level(logging.WARNING):
        job.restart()
        job.run(3)
    assert [line for line in caplog.messages if "no longer read" in line] == [
        "no longer read, and their positions are forgotten: gone. A stream that is added again starts where the job started"
    ]
