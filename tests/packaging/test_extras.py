"""How to install a missing extra, by where the package came from."""

import subprocess
import sys

import pytest

from recordpublisher.install_commands import install_command, install_command_from_url

from processes.command_line import process_environment

FOLDER = '{"url": "file:///home/me/record%20publisher", "dir_info": {"editable": EDITABLE}}'
WHEEL = '{"url": "file:///tmp/recordpublisher-0.1.0-py3-none-any.whl", "archive_info": {}}'


@pytest.mark.parametrize(
    ("direct_url", "command"),
    [
        (None, "pip install 'recordpublisher[sql]'"),
        ('{"url": "https://example.org/x.whl", "archive_info": {}}', "pip install 'recordpublisher[sql]'"),
        (FOLDER.replace("EDITABLE", "true"), "pip install -e '/home/me/record publisher[sql]'"),
        (FOLDER.replace("EDITABLE", "false"), "pip install '/home/me/record publisher[sql]'"),
        (WHEEL, "pip install '/tmp/recordpublisher-0.1.0-py3-none-any.whl[sql]'"),
    ],
)
def test_an_extra_is_installed_from_where_the_package_came(direct_url, command):
    assert install_command_from_url(direct_url, "sql") == command


def test_metadata_that_a_build_left_beside_the_source_hide_nothing(tmp_path, monkeypatch):
    before = install_command("sql")
    (tmp_path / "recordpublisher.egg-info").mkdir()
    (tmp_path / "recordpublisher.egg-info/PKG-INFO").write_text("Name: recordpublisher\nVersion: 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert install_command("sql") == before


HIDDEN = """
import importlib, pkgutil, sys
OF_EXTRAS = {"sqlalchemy", "psycopg", "pyarrow", "obstore", "fastavro", "deltalake", "pyiceberg", "polars", "cramjam", "opentelemetry",
             "google", "pandas", "numpy", "pyspark"}

class Hide:
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in OF_EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hide())
import recordpublisher
for each in pkgutil.walk_packages(recordpublisher.__path__, "recordpublisher.", onerror=lambda name: None):
    if not each.name.endswith(("__main__", "worker_daemon")):
        try:
            importlib.import_module(each.name)
        except ImportError as error:
            print(each.name.removeprefix("recordpublisher."), "says" if "needs the extra" in str(error) else "fails")
"""
CHOSEN = {
    *(
        f"plugins.{name}"
        for name in ("databases", "deserializers.avro", "metrics.opentelemetry", "runtime.data_frames")
    ),
    *(f"plugins.sinks.{name}" for name in ("files.parquet_sink", "sql", "tables.delta", "tables.iceberg")),
    "plugins.stores.sql_store",
}
"""Modules that a property or a name of `recordpublisher` chooses, and whose error names the extra."""
BEHIND = {
    *(
        f"plugins.columns.{name}"
        for name in ("file_columns", "parquet_encoder", "partitions", "record_columns", "typed_columns")
    ),
    *(
        f"plugins.sinks.{name}"
        for name in (
            "files.folder_schema",
            "tables.iceberg_file_io",
            "tables.sink",
            "tables.staged_data_files",
            "tables.table",
        )
    ),
    *(f"plugins.{name}" for name in ("archive.table_files", "dead_letters.letters_in_table", "tracing.spans")),
    *(f"plugins.deserializers.{name}" for name in ("glue", "protobuf")),
}
"""Modules that others import once they know that the extra is there."""


def test_only_what_needs_an_extra_fails_without_it():
    """A class that moves into a file with the import of an extra's package would need that extra too."""
    script = [sys.executable, "-c", HIDDEN]
    done = subprocess.run(script, env=process_environment(), capture_output=True, text=True, check=True, timeout=120)
    found = dict(line.split() for line in done.stdout.splitlines() if not line.startswith("plugins.spark."))

    assert {name for name, how in found.items() if how == "says"} == CHOSEN
    assert {name for name, how in found.items() if how == "fails"} == BEHIND
