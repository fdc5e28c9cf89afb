"""A Spark job whose tasks note how much CPU their Python workers take: a first, a warm one, and one after a task that failed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.empty_format import FOLDER, EmptySource

CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.python.authenticate.socketTimeout": "120s",
}


def main() -> None:
    job = json.loads(sys.argv[1])
    builder = SparkSession.builder.master("local[1,4]")
    for key, value in {**CONF, **job["conf"]}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    session.dataSource.register(EmptySource if job["source"] == "empty" else measured())
    frame = session.read.format(job["source"]).options(**job["options"]).load()
    for action in range(job["actions"]):
        if action == 2:  # the third, whose task has another attempt
            (Path(job["options"][FOLDER]) / "armed-fail").touch()
        frame.write.format("noop").mode("overwrite").save()
    session.stop()


def measured() -> Any:
    """Imported here, so that an empty source has imported nothing of it."""
    from spark_jobs.measured_format import MeasuredSource

    return MeasuredSource


if __name__ == "__main__":
    main()
