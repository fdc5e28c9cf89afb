"""What S3 charges for a terabyte that a job writes into a table: `python research/lake/cost.py` prints the rows of the page.

Prices of S3 Standard in us-east-1, from https://aws.amazon.com/s3/pricing/ (as others quoted it in 2026): PUT, COPY, POST and LIST 0.005
dollars a thousand, GET and HEAD 0.0004, DELETE nothing. Storage and the reading of Kinesis come on top.
"""

from math import ceil
from typing import NamedTuple

DOLLARS_A_WRITE, DOLLARS_A_READ = 0.005 / 1000, 0.0004 / 1000
PART_MB = 10
"""pyarrow's parts of an upload. A file below one is one request."""
LOG_ENTRIES = 50
"""Of Delta's log, which deltalake reads at each commit since the last checkpoint: one to a hundred."""


class Requests(NamedTuple):
    """`writes` are what S3 charges as PUT, `reads` as GET."""

    writes: int
    reads: int

    @property
    def dollars(self) -> float:
        return self.writes * DOLLARS_A_WRITE + self.reads * DOLLARS_A_READ


def requests_of_commit(table: str, megabytes: float, log_entries: int = LOG_ENTRIES) -> Requests:
    """One file of so many MB, its mark and the table's own commit; without the entry of the positions."""
    parts = ceil(megabytes / PART_MB) + 2 if megabytes > PART_MB or table == "iceberg" else 1
    if table == "delta":  # the mark, four listings, the log, what is left of the mark
        return Requests(parts + 1 + 4 + 1 + 1, log_entries + 2 + 2)
    return Requests(parts + 3 + 11, 19)  # the mark in three requests, two manifests and the metadata in nine


def of_terabyte(table: str, shards: int, subtasks: int, interval_seconds: float) -> Requests:
    """At 1 MB/s from each shard; each subtask commits a file at each interval, and its positions."""
    megabytes = shards / subtasks * interval_seconds
    one = requests_of_commit(table, megabytes)
    commits = ceil(1_000_000 / megabytes)
    return Requests(commits * (one.writes + 1), commits * one.reads)


def page_rows() -> list[str]:
    """As the how-to has them."""
    rows = []
    for shards, subtasks in ((10, 1), (100, 4)):
        for seconds in (10, 60, 300):
            found = [of_terabyte(table, shards, subtasks, seconds) for table in ("delta", "iceberg")]
            cells = [f"{each.writes + each.reads:,} | {each.dollars:.2f}" for each in found]
            rows.append(f"| {shards} | {subtasks} | {seconds} s | {' | '.join(cells)} |")
    return rows


if __name__ == "__main__":
    print("\n".join(page_rows()))
