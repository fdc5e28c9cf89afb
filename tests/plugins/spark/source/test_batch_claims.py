"""Where the claims of a query are."""

from __future__ import annotations

from recordpublisher.plugins.spark.options.spark_options import SparkOptions
from recordpublisher.plugins.spark.source.claims import claim_store

GIVEN = {"stream": "orders", "metadatalocation": "/claims"}


def test_one_process_has_one_store_of_claims():
    given = {**GIVEN, "metadatalocation": "s3://bucket/claims", "aws.region": "us-east-1"}
    stores = [claim_store(SparkOptions.parse(given)) for _ in range(2)]
    assert stores[0] is stores[1]
    assert claim_store(SparkOptions.parse({**given, "metadatalocation": "s3://bucket/others"})) is not stores[0]
