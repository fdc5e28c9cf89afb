"""What Spark's reader of a spool keeps between batches and queries."""

from __future__ import annotations

import pytest

from recordpublisher.plugins.spark.continuous.reader import SpoolStreamReader
from recordpublisher.plugins.spark.options import SparkOptions
from recordpublisher.publishers.errors import ConfigurationError

OPTIONS = {"stream": "s", "mode": "continuous", "metadataLocation": "s3://bucket/prefix", "aws.region": "us-east-1"}


def store_of(**more: str) -> object:
    return SpoolStreamReader(SparkOptions.parse({**OPTIONS, **more}))._store()


def test_a_query_with_corrected_access_has_a_client_of_its_own_in_a_worker_that_lives_on():
    wrong = store_of(**{"aws.credentials.provider.basic.secretkey": "wrong"})
    right = store_of(**{"aws.credentials.provider.basic.secretkey": "right"})
    assert wrong is not right
    assert store_of(**{"aws.credentials.provider.basic.secretkey": "right"}) is right


def test_c2_a_place_that_cannot_hold_a_spool_is_named_when_the_query_starts(tmp_path):
    (tmp_path / "file").write_text("in the way")
    location = tmp_path / "file" / "spool"
    reader = SpoolStreamReader(SparkOptions.parse({**OPTIONS, "metadataLocation": str(location)}))
    with pytest.raises(ConfigurationError, match=f"'metadataLocation' has the value '{location}'; the spool cannot be"):
        reader.initialOffset()
