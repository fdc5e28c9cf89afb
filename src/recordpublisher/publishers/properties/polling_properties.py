"""The properties of the publisher POLLING: the size and the interval of its reads."""

from ..service_limits import GET_RECORDS_RECORDS, ITERATOR_SECONDS
from .declaration import PropertyGroup

POLLING = PropertyGroup("Polling")
GETRECORDS_MAX = POLLING.integer(
    "flink.shard.getrecords.maxrecordcount",
    "Most records that one GetRecords call requests.",
    GET_RECORDS_RECORDS,
    minimum=1,
    maximum=GET_RECORDS_RECORDS,
    unit="records",
)
GETRECORDS_INTERVAL = POLLING.integer(
    "flink.shard.getrecords.intervalmillis",
    "Interval from the start of one read to the start of the next.",
    200,
    minimum=0,
    maximum=int(ITERATOR_SECONDS * 1000) - 1,
    unit="ms",
)
TIP_INTERVAL = POLLING.optional_integer(
    "flink.shard.getrecords.tip.intervalmillis",
    "Interval after an empty read at the shard's tip, until a record arrives. Not set: "
    "flink.shard.getrecords.intervalmillis.",
    minimum=200,
    maximum=5_000,
    unit="ms",
)
ADAPTIVE_READS = POLLING.boolean(
    "flink.shard.adaptivereads",
    "Set the limit of each read from the mean record size, to use the 2 MiB/s of a shard.",
    False,
)
