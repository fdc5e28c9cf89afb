"""Limits of Kinesis Data Streams that the reader, the sink, Spark and the embedded endpoint keep to. A test names the source of each."""

from __future__ import annotations

PUT_RECORDS_RECORDS = 500
"""Records of one PutRecords call."""
PUT_RECORDS_BYTES = 10 * 2**20
"""Data and partition keys of one PutRecords call."""
