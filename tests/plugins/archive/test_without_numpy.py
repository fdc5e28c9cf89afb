"""An archive of Parquet files needs no NumPy, which no extra but Spark's installs."""

import asyncio
import subprocess
import sys

import recordpublisher as rp

from fakes.archives import write_archive

READ = """
import asyncio, sys
sys.modules["numpy"] = None  # an import of it fails
from recordpublisher.plugins.archive.rows import ParquetRows
rows = asyncio.run(ParquetRows(sys.argv[1], "rows", asyncio.to_thread).rows(0))
print(len(rows.data), rows.partition_keys[0], rows.arrival_millis[0], rows.sub_sequence_numbers[0])
"""


def test_a_row_group_is_decoded_without_numpy(tmp_path):
    asyncio.run(write_archive(tmp_path, rp.ParquetSink, ()))
    file = next(tmp_path.rglob("*.parquet"))

    done = subprocess.run([sys.executable, "-c", READ, file], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    count, *first = done.stdout.split()
    assert int(count) == 24
    assert len(first) == 3
