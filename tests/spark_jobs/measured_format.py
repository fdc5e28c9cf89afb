"""format("measured"): the Kinesis source, whose tasks note how much CPU their worker has taken; one task fails at its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext

from recordpublisher.plugins.spark.columns.chosen_columns import chosen_columns
from recordpublisher.plugins.spark.data_source import KinesisPartition, KinesisSource, KinesisStreamReader

from spark_jobs.empty_format import FOLDER, note

FAILING_BATCH = 4


class MeasuredSource(KinesisSource):
    """The source itself, with another name and reader."""

    @classmethod
    def name(cls) -> str:
        return "measured"

    def streamReader(self, schema: Any) -> MeasuredReader:  # noqa: N802
        return MeasuredReader(self.query_options(), chosen_columns(schema))


class MeasuredReader(KinesisStreamReader):
    def read(self, partition: KinesisPartition) -> Iterator[Any]:
        began = time.process_time()
        yield from super().read(partition)
        context = TaskContext.get()
        assert context is not None
        batch, attempt = partition.plan.batch.batch, context.attemptNumber()
        note(str(self._options.properties[FOLDER]), batch, attempt, began)
        if (batch, attempt) == (FAILING_BATCH, 0):
            raise RuntimeError("a task that fails")
