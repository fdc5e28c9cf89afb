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


OF_THIS_PACKAGE = """
import sys
{code}
print(*(name.removeprefix("recordpublisher.") for name in sys.modules if name.startswith("recordpublisher.")))
"""


def imported_by(code: str) -> set[str]:
    """The modules of this package that a process has after `code`."""
    command = [sys.executable, "-c", OF_THIS_PACKAGE.format(code=code)]
    done = subprocess.run(command, env=process_environment(), capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_process_that_looks_for_the_names_of_formats_does_not_import_options():
    found = imported_by("import pyspark_recordpublisher; pyspark_recordpublisher.DefaultSource.name()")
    assert "plugins.spark.data_source" in found
    assert not found & {"plugins.spark.options.spark_options", "plugins.spark.stream_reader", "publishers.clock"}
    assert not found & {"publishers.properties.declaration", "plugins.deserializers.schemas"}


def test_the_process_that_only_sends_the_reader_to_the_tasks_does_not_read_the_options():
    found = imported_by("from recordpublisher.plugins.spark import KinesisSource; KinesisSource({}).streamReader(None)")
    assert "plugins.spark.stream_reader" in found
    assert not found & {"plugins.spark.options.spark_options", "plugins.spark.source.offset"}


def test_the_process_that_plans_imports_no_fetcher_and_without_fan_out_none_of_it():
    modules = ("source.patient_planner", "source.kinesis_service", "options.checks")
    found = imported_by("import " + ", ".join(f"recordpublisher.plugins.spark.{name}" for name in modules))
    assert "plugins.spark.source.batch_planner" in found
    assert not found & {"fetcher.shard_fetcher", "plugins.runtime.bounded_reader", "publishers.fanout"}


LOADED = """
import pickle, pathlib
from pyspark.sql.types import BinaryType, StructField, StructType
from recordpublisher.plugins.spark import KinesisSource
place = pathlib.Path({place!r})
if place.exists():
    assert pickle.loads(place.read_bytes()).streamReader(StructType([StructField("data", BinaryType())]))
else:
    source = KinesisSource({{"stream": "orders", "aws.region": "us-east-1", "metadatalocation": "/claims"}})
    source.schema()
    place.write_bytes(pickle.dumps(source))
"""


def test_what_load_has_checked_is_not_checked_again_by_the_processes_that_follow(tmp_path):
    code = LOADED.format(place=str(tmp_path / "source"))
    assert "plugins.spark.options.checks" in imported_by(code)
    assert "plugins.spark.options.checks" not in imported_by(code)


def test_a_query_whose_schema_is_given_is_checked_although_load_was_not_asked(tmp_path):
    given = {
        "stream": "orders",
        "aws.region": "us-east-1",
        "metadatalocation": str(tmp_path),
        "flink.stream.initpos": "soon",
    }
    with pytest.raises(ConfigurationError, match="soon"):
        KinesisSource(given).streamReader(StructType([StructField("data", BinaryType())])).initialOffset()


def test_the_process_that_plans_a_batch_read_imports_no_fetcher_and_the_range_alone_no_arrow():
    found = imported_by("import recordpublisher.plugins.spark.batch_read, recordpublisher.plugins.spark.read_range")
    assert "plugins.spark.arrow_rows" in found
    assert not found & {"fetcher.shard_fetcher", "plugins.runtime.bounded_reader", "publishers.fanout"}
    assert "plugins.spark.arrow_rows" not in imported_by("import recordpublisher.plugins.spark.read_range")


def test_a_task_that_polls_imports_no_fan_out():
    modules = ("spark.source.task_read", "spark.batch_read", "spark.stream_reader", "runtime.bounded_reader")
    found = imported_by("import " + ", ".join(f"recordpublisher.plugins.{name}" for name in modules))
    assert "plugins.runtime.bounded_reader" in found
    assert "publishers.fanout" not in found


WITHOUT_SCHEMA = """
from pyspark.sql.types import BinaryType, StructField, StructType
from recordpublisher.plugins.spark.row_columns import RowColumns
from recordpublisher.publishers.properties.properties import Properties
RowColumns.chosen(StructType([StructField("data", BinaryType())]), Properties())
"""


def test_a_task_without_a_schema_imports_nothing_that_makes_columns_of_values():
    columns = {"plugins.columns.typed_columns", "plugins.columns.file_columns", "plugins.deserializers.schemas"}
    assert not imported_by(WITHOUT_SCHEMA) & columns


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
    with pytest.raises(ConfigurationError, match="setting 'metadataLocation' is required"):
        source.streamReader(None).initialOffset()


def test_c2_a_query_has_no_end(tmp_path):
    source = KinesisSource(
        {"stream": "orders", "aws.region": "us-east-1", "metadatalocation": str(tmp_path), "endingposition": "NOW"}
    )
    with pytest.raises(ConfigurationError, match=r"setting 'endingPosition' is not accepted: a query has no end"):
        source.streamReader(None).initialOffset()


def test_c2_a_wrong_start_by_shard_fails_when_the_dataframe_is_loaded():
    source = KinesisSource({"stream": "orders", "aws.region": "us-east-1", "startingposition": '{"a": "soon"}'})
    with pytest.raises(ConfigurationError, match=r"setting 'startingPosition' is 'soon'"):
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
