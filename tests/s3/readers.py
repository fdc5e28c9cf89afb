"""What readers see of files and tables in a bucket: each file is copied once, as it is immutable, and DuckDB counts its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import duckdb
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from servers.atomic_stores import ACCESS

BUCKET = "bucket"


class LakeReader:
    """Owns the copies of the files that were visible. `url`: of the S3 server itself."""

    def __init__(self, url: str, prefix: str, folder: Path) -> None:
        self._client = boto3.client("s3", endpoint_url=url, **ACCESS)
        self._url, self._prefix, self._folder = url, prefix, folder
        self._seen: set[str] = set()

    def keys(self) -> set[str]:
        """All objects below the prefix, without it."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{self._prefix}/")
        found = [each["Key"] for page in pages for each in page.get("Contents", ())]
        return {key.removeprefix(f"{self._prefix}/") for key in found if not key.endswith("/")}

    def visible(self) -> set[str]:
        """The objects that a reader of the folder takes: of hidden folders none."""
        return {key for key in self.keys() if not any(part[0] in "._" for part in key.split("/"))}

    def check(self) -> int:
        """Rows that are visible now: none is there twice, and no file went away. Returns how many."""
        visible = self.visible()
        assert self._seen <= visible, f"files are gone: {self._seen - visible}"
        for number, name in enumerate(sorted(visible - self._seen), len(self._seen)):
            self._client.download_file(BUCKET, f"{self._prefix}/{name}", str(self._folder / f"{number}.parquet"))
        self._seen = visible
        if not visible:
            return 0
        query = "SELECT count(*), count(DISTINCT (shardId, sequenceNumber)) FROM read_parquet(?)"
        rows, different = duckdb.execute(query, [f"{self._folder}/*.parquet"]).fetchall()[0]
        assert rows == different, f"{self._prefix}: {rows - different} rows are there twice"
        return rows

    def numbers(self) -> list[str]:
        """The sequence numbers of all rows, read anew."""
        self.check()
        query = "SELECT sequenceNumber FROM read_parquet(?)"
        return [number for (number,) in duckdb.execute(query, [f"{self._folder}/*.parquet"]).fetchall()]

    def close(self) -> None:
        """End the client."""
        self._client.close()


class DeltaReader(LakeReader):
    """The files in Delta's log."""

    def _table(self) -> DeltaTable:
        options = {"AWS_ENDPOINT_URL": self._url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": ACCESS["region_name"]}
        options |= {
            "AWS_ACCESS_KEY_ID": ACCESS["aws_access_key_id"],
            "AWS_SECRET_ACCESS_KEY": ACCESS["aws_secret_access_key"],
        }
        return DeltaTable(f"s3://{BUCKET}/{self._prefix}", storage_options=options)

    def visible(self) -> set[str]:
        """As the newest version of the table says."""
        if not any(key.startswith("_delta_log/") for key in self.keys()):
            return set()
        return {uri.partition(f"/{self._prefix}/")[2] for uri in self._table().file_uris()}

    def numbers(self) -> list[str]:
        """By deltalake."""
        return self._table().to_pyarrow_table(columns=["sequenceNumber"])["sequenceNumber"].to_pylist()


class IcebergReader(LakeReader):
    """The files in Iceberg's newest snapshot."""

    def __init__(self, url: str, prefix: str, folder: Path, catalog: dict[str, str], table: str) -> None:
        super().__init__(url, prefix, folder)
        self._catalog = load_catalog("default", **catalog | {"s3.endpoint": url})
        self._name = table

    def _table(self) -> Any:
        return self._catalog.load_table(self._name)

    def visible(self) -> set[str]:
        """As the newest snapshot says."""
        if not self._catalog.table_exists(self._name):
            return set()
        files = [task.file.file_path for task in self._table().scan().plan_files()]
        assert len(files) == len(set(files)), "a file was added twice"
        return {path.partition(f"/{self._prefix}/")[2] for path in files}

    def numbers(self) -> list[str]:
        """By pyiceberg."""
        return self._table().scan(selected_fields=("sequenceNumber",)).to_arrow()["sequenceNumber"].to_pylist()
