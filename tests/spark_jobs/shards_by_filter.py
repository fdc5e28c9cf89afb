"""A source that pushes filters exactly: it does not plan the shards that a filter leaves out. Spark filters the rows all the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition

SHARDS = 4


class ShardsByFilter(DataSource):
    """Four shards with one row each."""

    @classmethod
    def name(cls) -> str:
        return "shards_by_filter"

    def schema(self) -> str:
        return "shard INT"

    def reader(self, schema: object) -> DataSourceReader:
        return _Reader()


class _Reader(DataSourceReader):
    def __init__(self) -> None:
        self._shards = set(range(SHARDS))

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        for each in filters:
            if isinstance(each, EqualTo) and each.attribute == ("shard",):
                self._shards &= {each.value}
            yield each

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(shard) for shard in sorted(self._shards)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)
