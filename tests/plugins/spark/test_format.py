"""The format without a running Spark: options of batch reads and queries; what Spark's many processes do not need is not imported."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from recordpublisher.plugins.spark import KinesisSource
from recordpublisher.publishers.errors import ConfigurationError

from processes.command_line import process_environment

CHECKED = """
import sys
from recordpublisher.plugins.spark import KinesisSource
KinesisSource({"stream": "orders", "aws.region": "us-east-1", "metadatalocation": sys.argv[1]}).schema()
found = {name.partition(".")[0] for name in sys.modules}
print(*sorted(found & {"botocore", "aiobotocore", "boto3", "aiohttp", "sqlalchemy", "pyarrow", "google"}))
"""


def test_the_format_has_a_second_name_for_where_kinesis_is_taken():
    names = [
        importlib.import_module(module).DefaultSource.name()
        for module in ("pyspark_recordpublisher", "pyspark_recordpublisher_format")
    ]
    assert names == ["kinesis", "recordpublisher"]


def test_c2_a_batch_read_needs_no_place_for_claims_and_a_query_does():
    source = KinesisSource({"stream": "orders", "aws.region": "us-east-1"})
    source.schema()
    source.reader(StructType([StructField("data", BinaryType())]))
    with pytest.raises(ConfigurationError, match="setting 'metadataLocation' is not set"):
        source.streamReader(None).initialOffset()


def test_c2_a_query_has_no_end(tmp_path):
    source = KinesisSource(
        {"stream": "orders", "aws.region": "us-east-1", "metadatalocation": str(tmp_path), "endingposition": "NOW"}
    )
    with pytest.raises(ConfigurationError, match=r"setting 'endingPosition'.*this is for spark.read"):
        source.streamReader(None).initialOffset()


def test_c2_a_wrong_start_by_shard_fails_when_the_dataframe_is_loaded():
    source = KinesisSource({"stream": "orders", "aws.region": "us-east-1", "startingposition": '{"a": "soon"}'})
    with pytest.raises(ConfigurationError, match=r"setting 'startingPosition' has the value 'soon'"):
        source.schema()


def test_c2_a_wrong_end_fails_when_the_dataframe_is_loaded():
    source = KinesisSource({"stream": "orders", "aws.region": "us-east-1", "endingposition": "tomorrow"})
    with pytest.raises(ConfigurationError, match="endingPosition"):
        source.schema()


@pytest.mark.slow
def test_a_process_that_checks_the_options_imports_no_large_library(tmp_path):
    command = [sys.executable, "-c", CHECKED, str(tmp_path)]
    done = subprocess.run(command, env=process_environment(), capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
