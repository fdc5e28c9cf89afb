"""The options of a Spark job that reads. Each is declared once, as a property with the option's short name as an alias (C1).

A claim is the record of what one task of a query has read. Claims are stored in the place that `metadataLocation` or `metadataRoot` names.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recordpublisher.fetcher.checkpoints.shard_starts import valid_by_shard
from recordpublisher.plugins.stores.back_ends import CLAIM_STORES, forms_of
from recordpublisher.plugins.stores.by_location import conditional_store_of
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.config_fields import of_property, properties_of, values_of
from recordpublisher.publishers.properties.declaration import Property
from recordpublisher.publishers.properties.fan_out_properties import CONSUMER_ARN, CONSUMER_NAME
from recordpublisher.publishers.properties.job_properties import ACCEPTS_LOSS, ON_DATA_LOSS
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import RECORD_PUBLISHER, uses_fan_out
from recordpublisher.publishers.properties.retry_properties import MAX_OUTAGE
from recordpublisher.publishers.service_limits import SECONDS_BETWEEN_SUBSCRIPTIONS
from recordpublisher.publishers.shards import stream_name

from . import SPARK
from .other_connectors import (
    OptionWarnings,
    check_unknown_options,
    import_declaring_plugins,
    options_with_our_keys,
    peer_options,
    refuse_continuous,
)
from .start_by_shard import STARTS, with_starts

_PLACE = forms_of(CLAIM_STORES, folder="a folder that the driver and every executor see")
ROOT_VARIABLE = "RECORDPUBLISHER_METADATA_ROOT"
"""Environment variable of the driver: the `metadataRoot` for queries whose options say nothing about the place for claims.

It is an environment variable because Spark does not show its configuration to a Python source.
"""

METADATA_LOCATION = SPARK.text(
    "flink.spark.metadata.location",
    f"Where claims (what tasks have read) are kept, one place for each query: {_PLACE}.",
    aliases=("metadataLocation",),
)
METADATA_ROOT = SPARK.text(
    "flink.spark.metadata.root",
    "Instead of `metadataLocation`: one place for the claims of all queries. Not set: the variable "
    f"{ROOT_VARIABLE} of the driver.",
    aliases=("metadataRoot",),
)
ON_METADATA_LOSS = SPARK.choice(
    "flink.spark.metadata.loss",
    "What a query does whose checkpoint exists but whose claims are lost or elsewhere: FAIL, or REPLAY (the records of the last batch come "
    "again).",
    "FAIL",
    ("FAIL", "REPLAY"),
    aliases=("onMetadataLoss",),
)
METADATA_PROPERTIES = (METADATA_LOCATION, METADATA_ROOT, ON_METADATA_LOSS)
_MIN_FAN_OUT_WINDOW_MS = int(SECONDS_BETWEEN_SUBSCRIPTIONS * 1000)
END_OPTION = "endingPosition"
VALID_END = "NOW, a time, or " + valid_by_shard(' or "NOW"')
ENDING_POSITION = SPARK.text(
    "flink.spark.end",
    f"`spark.read`: before which record of a shard a batch read ends: {VALID_END}. Not set: NOW, when the DataFrame is loaded.",
    aliases=(END_OPTION,),
)
STREAM = SPARK.text("flink.spark.stream", "The stream, name or ARN.", aliases=("stream",))
STREAMS = SPARK.text(
    "flink.spark.streams",
    "Streams, comma-separated, names or ARNs.",
    aliases=("streams",),
)
SHARDS_PER_TASK = SPARK.optional_integer(
    "flink.spark.shards.per.task",
    "Shards that one task reads at once. Not set: the shards are divided among `maxTasks` tasks.",
    1,
    unit="shards",
    aliases=("shardsPerTask",),
)
MAX_TASKS = SPARK.optional_integer(
    "flink.spark.max.tasks",
    "Tasks of one batch, or of `spark.read`, best the number of slots. Not set: the driver's CPUs; for `spark.read` more "
    "if a task would read more than 16 shards. The first batch of an AvailableNow run has one task for each 16 shards.",
    1,
    unit="tasks",
    aliases=("maxTasks",),
)
MAX_RECORDS = SPARK.optional_integer(
    "flink.spark.batch.records",
    "Most records of one batch. Not set: what is read in one window.",
    1,
    unit="records",
    aliases=("maxRecordsPerBatch", "maxOffsetsPerTrigger"),
)
MAX_BATCH_BYTES = SPARK.optional_integer(
    "flink.spark.batch.bytes",
    "Approximate payload of one batch: each task ends with the response that crosses its share. Not set: what is read "
    "in one window.",
    1,
    unit="bytes",
    aliases=("maxBytesPerBatch", "maxBytesPerTrigger"),
)
MAX_BYTES = SPARK.integer(
    "flink.spark.task.bytes",
    "The most payload that one task collects before it returns its rows.",
    64 * 2**20,
    2**10,
    unit="bytes",
    aliases=("maxBytesPerTask",),
)
MAX_TASK_RECORDS = SPARK.integer(
    "flink.spark.task.records",
    "The most records that one task collects.",
    1_000_000,
    1,
    unit="records",
    aliases=("maxRecordsPerTask",),
)
WINDOW = SPARK.integer(
    "flink.spark.window.millis",
    "How long a polling task reads at most. It ends earlier at the tip, and later for shards without progress in the last window.",
    1_500,
    10,
    unit="ms",
    aliases=("maxFetchTime",),
)
FAN_OUT_WINDOW = SPARK.integer(
    "flink.spark.efo.window.millis",
    "How long a fan-out task reads.",
    _MIN_FAN_OUT_WINDOW_MS + 500,
    _MIN_FAN_OUT_WINDOW_MS,
    unit="ms",
)
PROBE_INTERVAL = SPARK.integer(
    "flink.spark.probe.interval",
    "How often the driver polls a quiet shard (a hundred a second at most); no batch runs in that time.",
    1_000,
    0,
    unit="ms",
    aliases=("probeInterval",),
)
BATCHES_TO_RETAIN = SPARK.integer(
    "flink.spark.claims.batches",
    "For how many committed batches claims are kept.",
    10,
    1,
    unit="batches",
    aliases=("minBatchesToRetain",),
)
_OTHER_OPTIONS = (STREAM, STREAMS, *METADATA_PROPERTIES, STARTS, ENDING_POSITION)
"""Options that are not a field of `SparkOptions`, or are a field in another form."""


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """A job's options, typed and checked. All other properties are in `properties`.

    - `metadata_location`: the value of `metadataLocation` or `metadataRoot`. Claims are stored in this place, below the query's id.
    """

    streams: tuple[str, ...]
    metadata_location: str
    properties: Properties
    shards_per_task: int | None = of_property(SHARDS_PER_TASK)
    max_tasks: int | None = of_property(MAX_TASKS)
    max_records: int | None = of_property(MAX_RECORDS)
    max_batch_bytes: int | None = of_property(MAX_BATCH_BYTES)
    max_bytes: int = of_property(MAX_BYTES)
    max_task_records: int = of_property(MAX_TASK_RECORDS)
    window_ms: int = of_property(WINDOW)
    fan_out_window_ms: int = of_property(FAN_OUT_WINDOW)
    probe_ms: int = of_property(PROBE_INTERVAL)
    retain: int = of_property(BATCHES_TO_RETAIN)
    max_outage_ms: int = of_property(MAX_OUTAGE)
    accepts_loss: bool = of_property(ON_DATA_LOSS, kind=ACCEPTS_LOSS)
    warnings: OptionWarnings = OptionWarnings()  # noqa: RUF009 - is frozen

    @classmethod
    def parse(cls, options: Mapping[str, str], *, keeps_claims: bool = True) -> SparkOptions:
        """Parse and check the options that Spark passes. Their keys are in lower case.

        - `keeps_claims`: whether the job is a query. Its tasks store claims, and need a place for them.

        Raises: ConfigurationError if an option is invalid. The error names the value and the valid values.
        """
        refuse_continuous(options)
        properties = options_with_our_keys(with_starts(options), has_default=(ON_DATA_LOSS,))
        properties = with_loaded_stream(properties, (STREAMS, STREAM))
        all_imported = import_declaring_plugins(properties)
        # Unknown keys are not reported here, because `check_unknown_options` has better hints.
        properties.check(lambda key: False)
        check_unknown_options(properties, (*_OTHER_OPTIONS, *properties_of(cls)), all_imported=all_imported)
        if keeps_claims:
            properties = with_default_root(properties)
        else:
            warn_of_missing_place(properties, (MAX_RECORDS, MAX_BATCH_BYTES, PROBE_INTERVAL, BATCHES_TO_RETAIN))
        return cls(
            streams=_streams(properties),
            metadata_location=metadata_place(properties, is_needed=keeps_claims),
            properties=properties,
            **values_of(cls, properties),
        )

    @property
    def publisher(self) -> str:
        """The publisher's name, upper case."""
        return self.properties.value(RECORD_PUBLISHER)

    @property
    def stream_names(self) -> frozenset[str]:
        """Names of the streams. An ARN is replaced by the name in it."""
        return frozenset(map(stream_name, self.streams))

    @property
    def is_fan_out(self) -> bool:
        """Whether the job uses enhanced fan-out."""
        return uses_fan_out(self.properties)

    @property
    def polling_publisher(self) -> str:
        """Name of the publisher that reads a batch again after a failure, and that watches for new data.

        It is POLLING even if the job uses fan-out, because a second subscription to a shard would end the first one.
        """
        return "POLLING" if self.is_fan_out else self.publisher

    @property
    def metadata_key(self) -> str:
        """Name of the option that gave `metadata_location`."""
        return metadata_key(self.properties)

    @property
    def consumer(self) -> str:
        """The fan-out consumer's name as messages show it."""
        return self.properties.value(CONSUMER_NAME) or CONSUMER_ARN.key

    @property
    def replays_lost_claims(self) -> bool:
        """Whether a query whose claims (what its tasks have read) are lost continues.

        It then returns the records of its last batch again.
        """
        return self.properties.value(ON_METADATA_LOSS) == "REPLAY"


def with_loaded_stream(properties: Properties, stream_keys: Sequence[Property[str | None]]) -> Properties:
    """Return the properties with the stream that `load("orders")`, `start("orders")` or `save("orders")` names.

    Spark passes it as `path`. Raises: ConfigurationError if one of `stream_keys` names another stream.
    """
    path = properties.get("path")
    if path is None:
        return properties
    rest = properties.merged({"path": None})
    given = next((rest.value(key) for key in stream_keys if rest.is_set(key)), None)
    if given is not None and given != path:
        raise ConfigurationError("stream", given, repr(path), reason=f"load(), start() or save() names {path!r}")
    return rest if given is not None else rest.merged({STREAM.key: path})


def with_default_root(properties: Properties) -> Properties:
    """Return the properties with the place for claims (what tasks have read) in the driver's environment, unless the options give a place.

    Tasks do not read the environment. They receive these properties.
    """
    root = os.environ.get(ROOT_VARIABLE)
    is_given = properties.is_set(METADATA_LOCATION) or properties.is_set(METADATA_ROOT)
    return properties.merged({METADATA_ROOT.key: root}) if root and not is_given else properties


def warn_of_missing_place(properties: Properties, of_queries: Sequence[Property[Any]]) -> None:
    """Warn if an option that only queries use is given without a place for claims.

    This is not an error, because Spark does not say whether it loads a query or a batch read.

    - `of_queries`: the options that only queries use.
    """
    given = [option.aliases[0] for option in of_queries if properties.is_set(option)]
    if given and not any(map(with_default_root(properties).is_set, (METADATA_LOCATION, METADATA_ROOT))):
        text = (
            f"'{given[0]}' is for a query, which fails at its start without 'metadataLocation'; spark.read ignores it"
        )
        warnings.warn(text, UserWarning, stacklevel=3)


def metadata_key(properties: Properties) -> str:
    """Return the name of the option that gives the place for claims (what tasks have read)."""
    return "metadataRoot" if properties.is_set(METADATA_ROOT) else "metadataLocation"


def metadata_place(properties: Properties, *, is_needed: bool) -> str:
    """Return the place for claims (what tasks have read), or "" if none is given and none is needed.

    It is checked as far as possible without a call.

    Raises: ConfigurationError if the place is needed and missing, if it is invalid, or if both `metadataLocation` and `metadataRoot` are
    given.
    """
    location, root = properties.value(METADATA_LOCATION), properties.value(METADATA_ROOT)
    if location is not None and root is not None:
        raise ConfigurationError.conflict(
            "metadataRoot",
            "metadataLocation",
            reason="both say where the query stores what its tasks have read (claims)",
        )
    if location is None and root is None and not is_needed:
        return ""
    place = location or root
    if place is None:
        valid = f"{_PLACE}, for this query; or 'metadataRoot' or the driver's variable {ROOT_VARIABLE}, for all queries"
        raise ConfigurationError("metadataLocation", None, valid)
    conditional_store_of(place, metadata_key(properties), properties, is_for_claims=True)
    return place


def is_query(given: Properties) -> bool:
    """Return whether a stream, or a place for Spark's claims, is given, as in the options of a Spark job.

    Keys of other connectors count too.
    """
    named = (STREAM, STREAMS, METADATA_LOCATION, METADATA_ROOT)
    keys = {option.key for option in named}
    theirs = (option.key for options in peer_options().values() for option in options if option.ours in keys)
    return any(map(given.is_set, named)) or any(key in given for key in theirs)


def _streams(properties: Properties) -> tuple[str, ...]:
    one, several = properties.value(STREAM), properties.value(STREAMS)
    given = several or one
    names = tuple(name.strip() for name in (given or "").split(",") if name.strip())
    if not names:
        raise ConfigurationError(
            "stream",
            None,
            "a stream's name or ARN, as .option('stream', 'orders'); several as 'streams'",
        )
    if len(set(names)) < len(names):
        raise ConfigurationError("streams", given, "every stream once")
    if one and several and one != several:
        raise ConfigurationError.conflict("streams", f"stream={one}", value=several)
    return names
