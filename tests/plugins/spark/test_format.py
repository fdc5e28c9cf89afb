"""The format without a running Spark: a batch read is refused."""

from __future__ import annotations

import pytest

from recordpublisher.plugins.spark import KinesisSource
from recordpublisher.publishers.errors import ConfigurationError


def test_c2_spark_read_is_refused_and_names_available_now():
    source = KinesisSource({"stream": "orders", "metadatalocation": "/claims"})
    with pytest.raises(ConfigurationError, match=r"spark.read.*valid: spark.readStream.*availableNow=True"):
        source.reader(None)
