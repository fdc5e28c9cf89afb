"""Spark's daemon of Python workers that has imported what a reading task needs, before it forks them.

`spark.python.daemon.module=recordpublisher.plugins.spark.process.worker_daemon`. Spark's own daemon forks workers that import it each.
"""

import importlib
import os
import sys
from collections.abc import Sequence

MODULES = (
    "pyspark_recordpublisher",
    "recordpublisher.plugins.spark.source.task_read",
    "recordpublisher.plugins.spark.batch_read.range_read",
    "recordpublisher.publishers.polling",
    "recordpublisher.publishers.kinesis.client",
    "recordpublisher.publishers.kinesis.sdk.transport",
)
"""None of them starts a thread or opens a socket: a forked process would not have them."""


def main() -> None:
    """Import, and serve as Spark's daemon; Spark starts others, of processes that plan, with other arguments."""
    sys.path = without_zips(sys.path)
    from pyspark import daemon

    if sys.argv[1:2] == ["pyspark.worker"]:
        for name in MODULES:
            importlib.import_module(name)
    daemon.manager()


def without_zips(path: Sequence[str]) -> list[str]:
    """`sys.path` without `pyspark.zip` and its neighbours, where they belong to an installed PySpark that is on the path, too.

    Spark puts them first. Python keeps no compiled modules of a zip: each process that starts would compile PySpark again, 0.6 s of CPU.
    """
    found = {os.path.join(entry, "pyspark", "python", "lib") for entry in path}
    zips = {os.path.join(folder, "pyspark.zip") for folder in found} & set(path)
    folders = {os.path.dirname(each) for each in zips}
    return [entry for entry in path if os.path.dirname(entry) not in folders]


if __name__ == "__main__":
    main()
