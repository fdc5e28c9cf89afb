"""What S3 charges for a terabyte that a job writes into a table: `python research/lake/cost.py` prints the rows of the page.

Prices of S3 Standard in us-east-1, from https://aws.amazon.com/s3/pricing/ (as others quoted it in 2026): PUT, COPY, POST and LIST 0.005
dollars a thousand, GET and HEAD 0.0004, DELETE nothing. Storage and the reading of Kinesis come on top.

Prices of Amazon Data Firehose in us-east-1 from a Kinesis stream: AWS's own sample costs "as of August 2025", read on 27 November 2026 in
https://github.com/aws-solutions-library-samples/guidance-for-game-analytics-pipeline-on-aws: into Iceberg 0.045 dollars a GB (11.67 for
259.2 GB); into S3 as Parquet 0.047 a GiB, of which 0.018 for the conversion (58.90 for 100 records of 5 KiB a second, 730 hours). Records
into S3 count as multiples of 5 KiB. The price of Kinesis's streaming tables (channels, August 2026) stood in nothing that could be read.
"""

from math import ceil
from typing import NamedTuple

DOLLARS_A_WRITE, DOLLARS_A_READ = 0.005 / 1000, 0.0004 / 1000
PART_MB = 10 * 2**20 / 10**6
"""The parts of an upload. A file below one is one request."""
FIREHOSE_ICEBERG, FIREHOSE_PARQUET = 0.045, 0.029 + 0.018
"""Dollars a GB, and a GiB that is counted."""
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
    parts = ceil(megabytes / PART_MB) + 2 if megabytes > PART_MB else 1
    if (
        table == "delta"
    ):  # the mark, five listings (one is the look before the stage), the log, what is left of the mark
        return Requests(parts + 1 + 5 + 1 + 1, log_entries + 2 + 5)  # and whether it is the table of before, twice
    return Requests(parts + 5, 20)  # the mark, and what is left of it, two manifests and the metadata


def of_terabyte(table: str, shards: int, workers: int, interval_seconds: float) -> Requests:
    """At 1 MB/s from each shard; each worker commits a file at each interval, and its positions."""
    megabytes = shards / workers * interval_seconds
    one = requests_of_commit(table, megabytes)
    commits = ceil(1_000_000 / megabytes)
    return Requests(commits * (one.writes + 1), commits * one.reads)


def firehose_of_terabyte(table: str, record_bytes: int, dollars_a_gb: float | None = None) -> float:
    """Dollars for a terabyte of records of this size, into `iceberg`, or into S3 as `parquet`. `dollars_a_gb`: of another region."""
    if table == "iceberg":
        return 1_000 * (dollars_a_gb or FIREHOSE_ICEBERG)
    counted = 10**12 / record_bytes * ceil(record_bytes / 5_120) * 5_120
    return counted / 2**30 * (dollars_a_gb or FIREHOSE_PARQUET)


def firehose_sentence() -> str:
    """As the how-to has it."""
    iceberg = firehose_of_terabyte("iceberg", 1_000)
    parquet, small = (firehose_of_terabyte("parquet", size) for size in (5_120, 1_000))
    return (
        f"Amazon Data Firehose takes {iceberg:.0f} dollars into Iceberg, {parquet:.0f} into Parquet files, and {small:.0f} for records of "
        "1 KB, which count as 5"
    )


def page_rows() -> list[str]:
    """As the how-to has them."""
    rows = []
    for shards, workers in ((10, 1), (100, 4)):
        for seconds in (10, 60, 300):
            found = [of_terabyte(table, shards, workers, seconds) for table in ("delta", "iceberg")]
            cells = [f"{each.writes + each.reads:,} | {each.dollars:.2f}" for each in found]
            rows.append(f"| {shards} | {workers} | {seconds} s | {' | '.join(cells)} |")
    return rows


if __name__ == "__main__":
    print("\n".join([*page_rows(), firehose_sentence()]))
