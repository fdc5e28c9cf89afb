"""Spark's daemon of Python workers that has imported what a reading task needs, before it forks them.

`spark.python.daemon.module=recordpublisher.plugins.spark.service.worker_daemon`. Spark's own daemon forks workers that import it each.
"""

from __future__ import annotations

import importlib
import sys

from pyspark import daemon

MODULES = (
    "pyspark_recordpublisher",
    "recordpublisher.plugins.spark.source.read_task",
    "recordpublisher.plugins.spark.batch_read.range_read",
    "recordpublisher.publishers.polling",
    "recordpublisher.publishers.kinesis.client",
)
"""None of them starts a thread or opens a socket: a forked process would not have them."""


def main() -> None:
    """Import, and serve as Spark's daemon; Spark starts others, of processes that plan, with other arguments."""
    if sys.argv[1:2] == ["pyspark.worker"]:
        for name in MODULES:
            importlib.import_module(name)
    daemon.manager()


if __name__ == "__main__":
    main()
