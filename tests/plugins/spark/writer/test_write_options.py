"""Options of a writing job."""

from __future__ import annotations

import pickle
import warnings

import pytest

from recordpublisher.plugins.spark.write_options import INITIAL_FRACTION, QUEUE_BYTES_PER_STREAM, WriteOptions
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import UnknownPropertyWarning


def test_write_tasks_divides_the_rate_of_a_shard():
    alone = WriteOptions.parse({"stream": "out"}).settings
    shared = WriteOptions.parse({"stream": "out", "writetasks": "8"}).settings
    assert (alone.records_per_second, alone.bytes_per_second) == (1000, 2**20)
    assert (shared.records_per_second, shared.bytes_per_second) == (125, 2**17)


def test_without_write_tasks_a_task_begins_slowly():
    assert WriteOptions.parse({"stream": "out"}).settings.initial_fraction == INITIAL_FRACTION
    assert WriteOptions.parse({"stream": "out", "writetasks": "8"}).settings.initial_fraction == 1


def test_properties_of_the_sink_apply_and_sparks_own_options_are_no_warning():
    given = {"aggregationenabled": "true", "checkpointlocation": "/c", "flink.sink.kinesis.stream": "out"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options = WriteOptions.parse(given)
    assert (options.stream, options.settings.aggregates) == ("out", True)
    assert pickle.loads(pickle.dumps(options)) == options


def test_with_a_stream_column_each_stream_has_a_smaller_default_queue():
    assert WriteOptions.parse({}).settings_per_stream().queue_bytes == QUEUE_BYTES_PER_STREAM
    given = WriteOptions.parse({"flink.sink.kinesis.queue.bytes": "5000"})
    assert given.settings_per_stream().queue_bytes == 5000


def test_jobs_that_differ_only_in_target_and_ids_share_their_writers():
    first = WriteOptions.parse({"stream": "a", "idfield": "id", "aws.region": "eu-west-1"})
    assert first.connection_key == WriteOptions.parse({"stream": "b", "aws.region": "eu-west-1"}).connection_key
    assert first.connection_key != WriteOptions.parse({"stream": "a", "aws.region": "eu-west-2"}).connection_key


@pytest.mark.parametrize(("key", "nearest"), [("idfeild", "idField"), ("onfailur", "onFailure")])
def test_c1_a_mistyped_option_is_refused_with_the_nearest_one(key, nearest):
    with pytest.raises(ConfigurationError, match=f"'{key}' is not accepted.*did you mean '{nearest}'"):
        WriteOptions.parse({"stream": "out", key: "id"})


def test_c1_an_option_of_reading_is_a_warning():
    with pytest.warns(UnknownPropertyWarning, match="option 'metadatalocation' is ignored: jobs that read"):
        WriteOptions.parse({"stream": "out", "metadatalocation": "id"})


@pytest.mark.parametrize("key", ["retries", "flink.sink.kinesis.putrecords.maxretry"])
def test_c1_an_unknown_option_is_refused(key):
    with pytest.raises(ConfigurationError, match=f"'{key}' is not accepted"):
        WriteOptions.parse({"stream": "out", key: "id"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"stream": "a,b"}, "a column 'stream', and leave this option out"),
        ({"stream": "a", "writetasks": "0"}, "at least 1"),
        ({"stream": "a", "flink.sink.kinesis.ordering": "ALL"}, "NONE, PER_KEY"),
    ],
)
def test_c2_bad_values_are_named(given, words):
    with pytest.raises(ConfigurationError, match=words):
        WriteOptions.parse(given)


def test_a_start_warns_that_a_write_has_none():
    with pytest.warns(UserWarning, match="'startingPosition' has no effect on a write"):
        WriteOptions.parse({"stream": "s", "startingposition": "LATEST", "aggregationenabled": "false"})
