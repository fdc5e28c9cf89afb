"""Tables of both formats on a local folder, read by the libraries of the formats."""

from pathlib import Path

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import recordpublisher as rp
from recordpublisher.fetcher.sink import CommitNumber
from recordpublisher.plugins.sinks.tables.delta import DeltaSink
from recordpublisher.plugins.sinks.tables.iceberg import IcebergSink
from recordpublisher.plugins.stores.folder_store import FolderStore

WRITER = "job/0"


class Delta:
    name = "delta"

    def __init__(self, folder: Path):
        self.data = folder / "table"

    def sink(self, **more):
        return DeltaSink(rp.Properties({"flink.sink.delta.uri": str(self.data), **more}))

    @property
    def archive(self):
        return {"flink.archive.uri": f"delta:{self.data}"}

    def entries(self):
        return None

    def compact(self):
        DeltaTable(str(self.data)).optimize.compact()

    def delete(self, condition):
        DeltaTable(str(self.data)).delete(condition)

    def rows(self):
        return DeltaTable(str(self.data)).to_pyarrow_table().to_pylist()

    def commits(self):
        return DeltaTable(str(self.data)).version()


class Iceberg:
    name = "iceberg"

    def __init__(self, folder: Path):
        self.folder = folder
        self.data = folder / "warehouse" / "lake" / "orders"

    @property
    def catalog(self):
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": f"file://{self.folder}/warehouse",
        }

    @property
    def given(self):
        return {f"flink.sink.iceberg.catalog.{name}": value for name, value in self.catalog.items()}

    def sink(self, **more):
        given = {"flink.sink.iceberg.table": "lake.orders", "flink.state.uri": str(self.folder / "state")}
        return IcebergSink(rp.Properties({**self.given, **given, **more}))

    @property
    def archive(self):
        return {"flink.archive.uri": "iceberg:lake.orders", **self.given}

    def entries(self):
        return FolderStore(self.folder / "state", None)

    def compact(self):
        """Replace all files by one with small row groups, as `rewrite_data_files` does."""
        table = self.table()
        with table.transaction() as change:
            change.set_properties({"write.parquet.row-group-limit": "8"})
        order = [("sequenceNumber", "ascending"), ("subSequenceNumber", "ascending")]
        table.overwrite(table.scan().to_arrow().sort_by(order))

    def delete(self, condition):
        self.table().delete(condition)

    def table(self):
        return load_catalog("default", **self.catalog).load_table("lake.orders")

    def rows(self):
        return self.table().scan().to_arrow().to_pylist()

    def commits(self):
        return len(self.table().snapshots())


def place_of(folder, kind):
    """The properties of a sink, of files or of a table."""
    if kind == "iceberg":
        return {
            **Iceberg(folder).given,
            "flink.sink.iceberg.table": "lake.orders",
            "flink.state.uri": f"{folder}/state",
        }
    return {f"flink.sink.{kind}.{'uri' if kind == 'delta' else 'path'}": str(folder)}


def uri_of(folder, kind):
    """The properties of a job that reads the archive that such a sink wrote."""
    if kind == "iceberg":
        return Iceberg(folder).archive
    return {"flink.archive.uri": f"delta:{folder}" if kind == "delta" else str(folder)}


def number(n, writer=WRITER):
    return CommitNumber(writer, n)


async def opened(kind, life="job.0.1", context=None, **more):
    sink = kind.sink(**more)
    await sink.open(context or rp.SinkContext())
    await sink.begin(life)
    return sink


def payloads(kind):
    return sorted(row["data"] for row in kind.rows())


def data_files(kind):
    return sorted(str(path.relative_to(kind.data)) for path in (kind.data / "data").rglob("*.parquet"))


def marks(kind):
    return sorted(path.name for path in (kind.data / "_recordpublisher" / "staged").rglob("*") if path.is_file())
