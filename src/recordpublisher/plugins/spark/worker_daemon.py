"""Spark's daemon of Python workers. Before it forks the workers, it imports the modules that tasks need.

Enabled by `spark.python.daemon.module=recordpublisher.plugins.spark.worker_daemon`. With Spark's own daemon, each forked worker imports
them.
"""

import importlib
import os
import sys
from collections.abc import Sequence

from .python_worker import reduce_garbage_collection

MODULES = (
    "pyspark_recordpublisher",
    "recordpublisher.plugins.spark.stream_reader",
    "recordpublisher.plugins.spark.source.task_read",
    "recordpublisher.plugins.runtime.bounded_reader",
    "recordpublisher.plugins.spark.batch_read",
    "recordpublisher.publishers.polling",
    "recordpublisher.publishers.kinesis.client",
    "recordpublisher.publishers.kinesis.sdk.transport",
)
"""Modules that the daemon imports. None of them starts a thread or opens a socket, because a forked process would not have them."""


def main() -> None:
    """Import the modules that tasks need, and serve as Spark's daemon.

    Spark starts the daemons of planning processes with other arguments. Those daemons import nothing here.
    """
    sys.path = without_zips(sys.path)
    from pyspark import daemon

    if sys.argv[1:2] == ["pyspark.worker"]:
        for name in MODULES:
            importlib.import_module(name)
        reduce_garbage_collection()  # Called once more for the modules just imported, which the forked workers inherit.
    daemon.manager()


def without_zips(path: Sequence[str]) -> list[str]:
    """Return `path` (`sys.path`) without `pyspark.zip` and the other files in its folder, if that PySpark itself is also on the path.

    Spark puts these zips first. Python does not store compiled modules of a zip, so each process that starts would compile PySpark again
    (0.6 s of CPU).
    """
    found = {os.path.join(entry, "pyspark", "python", "lib") for entry in path}
    zips = {os.path.join(folder, "pyspark.zip") for folder in found} & set(path)
    folders = {os.path.dirname(each) for each in zips}
    return [entry for entry in path if os.path.dirname(entry) not in folders]


if __name__ == "__main__":
    main()
