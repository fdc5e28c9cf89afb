"""One real Spark for every test here, and the embedded endpoint beside it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from spark_jobs.queries import Kinesis


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
        # tests add up what all batches brought: Spark forgets all but the last hundred
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        # how long a worker may take to start: 15 s are too few on a machine that has other things to do
        "spark.python.authenticate.socketTimeout": "120s",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
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


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """What runs in a process of Spark's own sets the library's level there (`log_to_stderr`); here other tests come after it."""
    logger = logging.getLogger("recordpublisher")
    level = logger.level
    yield
    logger.setLevel(level)
