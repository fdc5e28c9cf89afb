"""Bad records: what can be wrong with one, and the properties that say what happens to it then (S7).

| what is wrong | property | found in |
|---|---|---|
| payload not decompressed, or too large; no value; no valid event time | `flink.deserializer.error` | `consumer/poison_policy.py` |
| the sink can never write it | `flink.deserializer.error` | `fetcher/pipeline/dead_letter_handler.py` |
| the function of MapSink failed after the last retry | `flink.sink.map.on.failure` | `plugins/sinks/map/handling.py` |
| Spark: a row can never be written | `flink.spark.write.onfailure` | `plugins/spark/writer.py` |
"""

from enum import Enum
from typing import Literal

from ..property_types import PropertyGroup


class OnBadRecord(Enum):
    """What happens to a bad record.

    FAIL: the job ends with an error that names it. SKIP: it is logged, counted and passed over. DEAD_LETTER: it is written to the
    dead-letter sink.
    """

    FAIL = "FAIL"
    SKIP = "SKIP"
    DEAD_LETTER = "DEAD_LETTER"


OnFailureName = Literal["FAIL", "SKIP", "DEAD_LETTER"]
"""The names of `OnBadRecord`, as arguments accept them."""
CHOICES = tuple(OnBadRecord.__members__)
BAD_RECORDS = PropertyGroup("Bad records")
ON_BAD_RECORD = BAD_RECORDS.choice(
    "flink.deserializer.error",
    "A record that cannot be deserialised, or that the sink can never write: FAIL, SKIP and count, or DEAD_LETTER.",
    OnBadRecord.FAIL.name,
    CHOICES,
)
MAP_ON_FAILURE = BAD_RECORDS.choice(
    "flink.sink.map.on.failure",
    "After the last retry: FAIL the job, SKIP the record, or DEAD_LETTER, with `flink.deserializer.error=DEAD_LETTER`.",
    OnBadRecord.FAIL.name,
    CHOICES,
)
DEAD_LETTER_SINK = BAD_RECORDS.text(
    "flink.deadletter.sink", "The sink for records that cannot be used, with flink.deserializer.error=DEAD_LETTER."
)
DEAD_LETTER = BAD_RECORDS.prefix(
    "flink.deadletter.", "A setting of the dead-letter sink: flink.deadletter.jsonl.path is its flink.sink.jsonl.path."
)
