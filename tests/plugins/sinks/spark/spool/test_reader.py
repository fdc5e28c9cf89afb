"""What Spark's reader of a spool keeps between batches and queries."""

from __future__ import annotations

from recordpublisher.plugins.sinks.spark.options import SparkOptions
from recordpublisher.plugins.sinks.spark.spool.reader import SpoolStreamReader

OPTIONS = {"stream": "s", "mode": "driver", "metadataLocation": "s3://bucket/prefix", "aws.region": "us-east-1"}


def store_of(**more: str) -> object:
    return SpoolStreamReader(SparkOptions.parse({**OPTIONS, **more}))._store()


def test_a_query_with_corrected_access_has_a_client_of_its_own_in_a_worker_that_lives_on():
    wrong = store_of(**{"aws.credentials.provider.basic.secretkey": "wrong"})
    right = store_of(**{"aws.credentials.provider.basic.secretkey": "right"})
    assert wrong is not right
    assert store_of(**{"aws.credentials.provider.basic.secretkey": "right"}) is right
