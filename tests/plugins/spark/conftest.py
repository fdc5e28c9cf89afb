"""One real Spark for all tests of this folder, and the embedded endpoint."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from recordpublisher.plugins.spark import python_worker

from spark_jobs.queries import Kinesis, at_home


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local Spark with two slots; its Python workers are this Python."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.task.maxFailures": "1",
        # tests sum the progress of all batches, and Spark keeps only the last hundred by default
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        # how long a worker may take to start: the default of 15 s is too short on a busy machine
        "spark.python.authenticate.socketTimeout": "120s",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    with at_home():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def served() -> Iterator[Any]:
    """The embedded endpoint, in a thread."""
    from recordpublisher.local import serve_in_thread

    with serve_in_thread() as thread:
        yield thread


@pytest.fixture
def kinesis(served: Any) -> Callable[..., Kinesis]:
    """Makes streams at the endpoint."""
    return lambda name, shards=2: Kinesis(served, name, shards)


@pytest.fixture(autouse=True, scope="module")
def _no_work_in_the_background() -> Iterator[None]:
    """What a planner lists and watches in the background goes on until its process ends, which here is that of other tests."""
    yield
    current = python_worker._CURRENT
    for future in [] if current is None else list(current._background):
        future.cancel()


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Restore the library's log level, which `log_to_stderr` sets. In Spark's own processes nothing runs afterwards."""
    logger = logging.getLogger("recordpublisher")
    level = logger.level
    yield
    logger.setLevel(level)
