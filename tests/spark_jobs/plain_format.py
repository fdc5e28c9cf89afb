"""format("plain"): a Python source of numbers that imports nothing but PySpark and pyarrow, as a reference for the CPU of ours."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

TASKS = 2


class PlainSource(DataSource):
    """Option `rows`: how many rows there are."""

    @classmethod
    def name(cls) -> str:
        return "plain"

    def schema(self) -> str:
        return "n long"

    def streamReader(self, schema: Any) -> PlainReader:  # noqa: N802 - Spark's name
        return PlainReader(int(self.options["rows"]))


class PlainReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"n": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"n": self._rows}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"n": self._rows}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        pass

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(task) for task in range(TASKS)] if start != end else []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow as pa

        numbers = array("q", range(partition.value, self._rows, TASKS))
        buffers = [None, pa.py_buffer(numbers)]  # `pa.array` would import pandas
        column = pa.Array.from_buffers(pa.int64(), len(numbers), buffers)
        yield pa.record_batch([column], names=["n"])
