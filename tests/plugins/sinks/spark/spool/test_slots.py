"""How many fetchers fit: every one keeps a slot, and the query needs one."""

from __future__ import annotations

import pytest

from recordpublisher.plugins.sinks.spark.spool.slots import checked_tasks
from recordpublisher.publishers.errors import ConfigurationError


class Context:
    def __init__(self, master: str, parallelism: int, **conf: str) -> None:
        self.master, self.defaultParallelism = master, parallelism
        self._conf = {key.replace("_", "."): value for key, value in conf.items()}

    def getConf(self):  # noqa: N802
        return self._conf


@pytest.mark.parametrize(
    ("tasks", "context", "taken"),
    [
        (None, Context("local[4]", 4), 2),
        (None, Context("local[4,2]", 4), 2),
        (3, Context("local[4]", 4), 3),
        (None, Context("local[4]", 200, spark_default_parallelism="200"), 2),
        (None, Context("local[8]", 8, spark_task_cpus="2"), 2),
        (None, Context("spark://host:7077", 16), 8),
        (40, Context("yarn", 2), 40),
        (40, Context("yarn", 200, spark_default_parallelism="200"), 40),
    ],
)
def test_half_of_the_slots_unless_a_number_is_given(tasks, context, taken):
    assert checked_tasks(tasks, context) == taken


@pytest.mark.parametrize(
    ("tasks", "context", "words"),
    [
        (4, Context("local[4]", 4), "'tasks' has the value 4; valid: fewer than the 4 slots"),
        (8, Context("local[4]", 200, spark_default_parallelism="200"), "fewer than the 4 slots"),
        (1, Context("local", 1), r"this Spark has one slot.*mode=driver.*local\[2\]"),
        (None, Context("local[1]", 1), r"this Spark has one slot.*mode=driver.*local\[2\]"),
        (
            None,
            Context("yarn", 200, spark_default_parallelism="200"),
            "spark.default.parallelism is set.*a whole number",
        ),
        (0, Context("yarn", 8), "a whole number of at least 1"),
        ("4", Context("yarn", 8), "a whole number of at least 1"),
        (True, Context("yarn", 8), "a whole number of at least 1"),
    ],
)
def test_c2_what_cannot_run_is_an_error_and_does_not_hang(tasks, context, words):
    with pytest.raises(ConfigurationError, match=words):
        checked_tasks(tasks, context)
