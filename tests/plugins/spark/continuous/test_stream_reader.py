"""Spark's reader in mode CONTINUOUS: what it keeps between batches and queries, and its errors when a query starts."""

from __future__ import annotations

import pytest

from recordpublisher.plugins.spark.continuous.stream_reader import EXPERIMENTAL, ContinuousStreamReader
from recordpublisher.plugins.spark.options import SparkOptions
from recordpublisher.publishers.errors import ConfigurationError, StateError

OPTIONS = {"stream": "s", "mode": "continuous", "metadataLocation": "s3://bucket/prefix", "aws.region": "us-east-1"}


def store_of(**more: str) -> object:
    return ContinuousStreamReader(SparkOptions.parse({**OPTIONS, **more}))._store()


def test_a_query_with_corrected_credentials_gets_a_new_client_in_a_reused_worker():
    key = {"aws.credentials.provider.basic.accesskeyid": "id"}
    wrong = store_of(**key, **{"aws.credentials.provider.basic.secretkey": "wrong"})
    right = store_of(**key, **{"aws.credentials.provider.basic.secretkey": "right"})
    assert wrong is not right
    assert store_of(**key, **{"aws.credentials.provider.basic.secretkey": "right"}) is right


def test_c2_a_location_that_cannot_hold_a_log_is_named_when_the_query_starts(tmp_path):
    (tmp_path / "file").write_text("in the way")
    location = tmp_path / "file" / "wal"
    reader = ContinuousStreamReader(SparkOptions.parse({**OPTIONS, "metadataLocation": str(location)}))
    words = f"'metadataLocation' has the value '{location}'; the write-ahead log cannot be"
    with pytest.raises(ConfigurationError, match=words):
        reader.initialOffset()


def test_a_log_of_the_previous_version_is_refused_when_the_query_starts(tmp_path):
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "id").write_text("0123")
    reader = ContinuousStreamReader(SparkOptions.parse({**OPTIONS, "metadataLocation": str(tmp_path)}))
    with pytest.raises(StateError, match="format version 1, this release reads version 2: begin with a new"):
        reader.initialOffset()


def test_a_query_warns_once_that_the_mode_is_experimental(tmp_path, caplog):
    reader = ContinuousStreamReader(SparkOptions.parse({**OPTIONS, "metadataLocation": str(tmp_path)}))
    for _ in range(2):
        reader.initialOffset()
    assert [record.message for record in caplog.records].count(EXPERIMENTAL) == 1
