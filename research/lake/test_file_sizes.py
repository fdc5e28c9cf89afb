"""The measured table of the page about compaction has the rows of its script, whose figures grow with the interval."""

import re

from lake.file_sizes import CASES, PARTITIONS, page_row, sizes
from processes.command_line import ROOT

PAGE = (ROOT / "docs/how-to/compact-files.md").read_text()


async def test_a_commit_leaves_a_file_for_each_partition_in_both_sinks():
    for sink in ("parquet", "delta"):
        found = await sizes(sink, 1, 2, 64)
        assert len(found) == 2 * PARTITIONS, sink
        assert page_row(sink, 1, 2, 64, found).startswith(f"| {sink} | 1 s | 64 MiB | 4,320,000 | 0.0")


def test_the_page_has_a_row_for_each_case():
    rows = re.findall(r"^\| (parquet|delta) \| (\d+) s \| (\d+) MiB \|", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted((sink, str(s), str(mib)) for sink in ("parquet", "delta") for s, _, mib in CASES)
