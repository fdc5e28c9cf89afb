"""Workers that start at the same time on a new Iceberg catalogue; what pyiceberg logs."""

import logging

from pyiceberg.catalog.sql import SqlCatalog

from .lake_tables import Iceberg, opened


async def test_a_namespace_that_another_worker_creates_at_the_same_time_is_used(tmp_path):
    racing = f"{__name__}.{CatalogInARace.__name__}"
    sink = await opened(
        Iceberg(tmp_path),
        **{"flink.sink.iceberg.catalog.type": None, "flink.sink.iceberg.catalog.py-catalog-impl": racing},
    )
    await sink.close()

    assert Iceberg(tmp_path).rows() == []


class CatalogInARace(SqlCatalog):
    """Another worker creates the namespace after the look and before the insert."""

    is_over = False

    def namespace_exists(self, namespace):
        is_there = super().namespace_exists(namespace)
        if not is_there and not self.is_over:
            self.is_over = True
            self.create_namespace(namespace)
        return is_there


def test_a_column_without_statistics_is_no_news_in_the_log_of_a_job(caplog):
    logger = logging.getLogger("pyiceberg.io.pyarrow")
    logger.warning("PyArrow statistics missing for column %d when writing file", 8)
    logger.warning("something else")
    assert [line.message for line in caplog.records] == ["something else"]
