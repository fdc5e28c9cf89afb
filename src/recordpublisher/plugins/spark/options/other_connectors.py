"""Translates options of other Kinesis connectors. An unknown option is refused with an error that names the nearest known option."""

import difflib
import json
import logging
import re
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.initial_position import refuse_future
from recordpublisher.publishers.positions import PositionType
from recordpublisher.publishers.properties.declaration import (
    POSITION_ALIASES,
    Property,
    declared_properties,
    find_property,
)
from recordpublisher.publishers.properties.properties import (
    Properties,
    UnknownPropertyWarning,
    is_unknown,
    nearest_hint,
    why_flink_key_has_no_effect,
)
from recordpublisher.publishers.properties.reading_properties import (
    ENDPOINT,
    INITIAL_TIMESTAMP,
    REGION,
    ROLE_STS_ENDPOINT,
    uses_fan_out,
)
from recordpublisher.publishers.properties.times_and_sizes import (
    MAX_MS,
    epoch_ms,
    iso_time,
    parse_with_unit,
    why_no_time,
)
from recordpublisher.publishers.safe_text import MASK

from ..python_worker import log_to_stderr
from .start_by_shard import AT_TIME, VALID_START, option_time_ms

_COMMITTING = "pyspark.sql.worker.python_streaming_sink_runner"
LOG = logging.getLogger("recordpublisher.spark")


def options_with_our_keys(options: Mapping[str, str], has_default: Collection[Property[Any]]) -> Properties:
    """Translate the options of other connectors, and return all options with the keys of this library.

    - `has_default`: properties whose default matters to the job. A warning is given if the other connector has a different default.

    Raises: ConfigurationError in these cases:

    - An option has no equivalent here.
    - A value is not valid in the other connector.
    - Two options give different values to one property.
    """
    given = _with_prefixes(Properties(options))
    _refuse_all(given)
    own = given
    spelled: dict[str, str] = {}  # by our key: the spelling that gave its value
    for key in given:
        option = _option_of(key)
        if option is None or key.lower() in _own_spellings(option):
            continue
        for ours, value in _translated(option, given[key].strip(), given).items():
            declared = _declared(ours)
            _check_same(given, option.key, declared, value)
            if ours in spelled and declared.parse(own[ours]) != declared.parse(value):
                raise _two_values(declared, option.key, given[key], spelled[ours], own[ours])
            spelled[ours] = option.key
            own = own.merged({ours: value})
        own = Properties({name: text for name, text in own.items() if name.lower() != key.lower()})
    own = _with_implied(own, [option for key in given if (option := _option_of(key)) is not None])
    _warn_of_defaults(Properties(options), own, has_default)
    return own


@dataclass(frozen=True, slots=True)
class OptionWarnings:
    """Warnings about the options of a job.

    - `is_told`: whether `load()` has logged them. If the user gives a schema, `load()` does not ask the source, so it logs nothing.
    """

    texts: tuple[str, ...] = ()
    is_told: bool = False

    def tell(self) -> None:
        """Log the warnings, unless `load()` has already logged them."""
        if not self.is_told and self.texts:
            log_to_stderr()
            for text in self.texts:
                LOG.warning(text)


def silence_in_commit_process() -> None:
    """Ignore warnings if this process commits writes.

    Spark makes the writer of a query in two processes: one plans the writes, the other commits them. The first one has already warned.
    """
    if _COMMITTING in sys.modules:
        warnings.simplefilter("ignore", UserWarning)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the warnings of the block, each text once. The list is filled at the end of the block."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        yield texts
    texts += dict.fromkeys(str(each.message) for each in caught)


SPARK_OPTIONS = ("checkpointlocation",)
"""Spark's own options, in lower case. Spark passes them to the source together with the source's options."""
_PREFIX = "kinesis"
_MODE = ("mode", "flink.spark.mode")
_CONTINUOUS = ("walrollinterval", "walrollbytes", "walrollrecords", "maxwalbytes")
_OF_CONTINUOUS = "it is an option of the mode CONTINUOUS, which no longer exists"
_INSTEAD = (
    "BATCH, the only mode, with a short trigger; or, where records are needed within a second, the library's own fetcher with fan-out "
    "(rp.consume, rp.DataFetcher)"
)


def refuse_continuous(options: Mapping[str, str]) -> None:
    """Raise an error for an option of mode CONTINUOUS, which no longer exists. `mode=BATCH` is accepted, and has no effect.

    Raises: ConfigurationError if such an option is given.
    """
    for key, value in options.items():
        lower = key.lower()
        is_other_mode = lower in _MODE and value.strip().upper() != "BATCH"
        if is_other_mode or lower in _CONTINUOUS or lower.startswith("flink.spark.wal."):
            reason = "the mode CONTINUOUS no longer exists" if is_other_mode else _OF_CONTINUOUS
            raise ConfigurationError(key, value, _INSTEAD if is_other_mode else f"the mode {_INSTEAD}", reason=reason)


def import_declaring_plugins(properties: Properties) -> bool:
    """Import the plugins that may have declared the given properties. Return whether all plugins that may declare one were imported."""
    if not any(is_unknown(key) and not is_option(key) for key in properties):
        return True
    return not load_registry().import_chosen(properties)


def check_unknown_options(properties: Properties, ours: Sequence[Property[Any]], *, all_imported: bool = True) -> None:
    """Check that every key is a declared property or one of the options `ours`. The error names the nearest known key.

    Call it after options of other connectors were translated. It only warns of two kinds of keys:

    - an option for writing in a job that reads, or for reading in a job that writes,
    - a key of Flink's connector that has no effect here.

    `all_imported`: the result of `import_declaring_plugins`.

    Keys of another name space (`my.own.key`) are accepted, because a plugin may read them.

    - `ours`: the options of this kind of job.

    Raises: ConfigurationError if a key is unknown.
    """
    own = {alias.lower(): alias for option in ours for alias in option.aliases}
    declared = {key.key.lower() for key in declared_properties()}
    known = {option.key.lower(): option.key for options in PEERS.values() for option in options} | own
    for key in properties:
        lower = key.lower()
        if lower in own or lower in (*SPARK_OPTIONS, *_MODE) or lower in declared:
            continue
        if find_property(key) is not None and is_option(key):
            text = f"option '{key}' is ignored: jobs that read and jobs that write have different options"
            warnings.warn(text, UnknownPropertyWarning, stacklevel=3)
        elif is_option(key):
            nearest = known.get(lower.removeprefix(f"{_PREFIX}.")) or next(
                (known[each] for each in difflib.get_close_matches(lower, known, n=1, cutoff=0.8)), None
            )
            hint = f"; did you mean '{nearest}'?" if nearest else nearest_hint(key)
            raise ConfigurationError(key, reason=f"there is no such option{hint}")
        elif is_unknown(key):
            reason = why_flink_key_has_no_effect(key)
            if reason is None:
                raise ConfigurationError(key, reason=f"there is no such property{nearest_hint(key, all_imported)}")
            warnings.warn(f"property '{key}' has no effect here: {reason}", UnknownPropertyWarning, stacklevel=3)


def is_option(key: str) -> bool:
    """Return whether a key has the form of an option: it has no dot, or a prefix like `kinesis.`."""
    prefix, dot, _ = key.lower().partition(".")
    return not dot or bool(difflib.get_close_matches(prefix, (_PREFIX,), n=1, cutoff=0.8))


_VIEW = "CREATE TEMPORARY VIEW orders USING kinesis OPTIONS (stream 'orders', ...)"
_REASON = "Spark does not pass the options of a table to the source that reads it"


def refuse_new_table(options: Mapping[str, str]) -> None:
    """Raise an error if Spark 4.3 asks for the columns of a CREATE TABLE that lists none.

    If the CREATE TABLE lists columns, Spark does not call the source.

    Raises: ConfigurationError if `options` are those of a CREATE TABLE.
    """
    if "provider" in options and "owner" in options:
        raise ConfigurationError("CREATE TABLE USING", options["provider"], _VIEW, reason=_REASON)


def refuse_table(options: Mapping[str, str]) -> None:
    """Raise an error for a read from a table, for which Spark passes no options.

    Raises: ConfigurationError if there is no option.
    """
    if not options:
        valid = (
            f"a stream's name or ARN, as .option('stream', 'orders'); in SQL {_VIEW}, because a table of CREATE TABLE cannot be read "
            "(Spark does not pass its options)"
        )
        raise ConfigurationError("stream", None, valid)


# --- the options of other connectors, which the documentation shows -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PeerOption:
    """One option of another connector. It is translated to our property `ours`, or refused with a reason. A `key` with `.*` is a prefix.

    - `values`: the other connector's values (lower case), each with our value, if the option has a fixed set of values. Other values are
      refused with `reason`.
    - `unit`: the unit in which the other connector reads plain numbers, if it differs from ours.
    - `also`: our properties that the option implies, with their values.
    - `before`: the other connector's option to whose value this one is added, if this one is a prefix such as `consumerNamePrefix`.
    - `default`: the other connector's default, if it means something else than our default.
    - `refused`: why the option has no equivalent here, and what to use instead.
    """

    key: str
    ours: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    unit: str = ""
    also: Mapping[str, str] = field(default_factory=dict)
    before: str = ""
    default: str = ""
    refused: str = ""
    reason: str = ""


def _refused(reason: str, keys: str) -> tuple[PeerOption, ...]:
    return tuple(PeerOption(key, refused=reason) for key in keys.split())


EPOCH_MS = "epoch ms"
START = {"latest": "LATEST", "trim_horizon": "TRIM_HORIZON", **POSITION_ALIASES}
LOSS = {"true": "FAIL", "false": "CONTINUE"}
ROLE = {"aws.credentials.provider": "ASSUME_ROLE"}
ACCESS_KEY, SECRET_KEY = "aws.credentials.provider.basic.accesskeyid", "aws.credentials.provider.basic.secretkey"
TEMPORARY = "aws.credentials.provider.basic.sessiontoken"
ROLE_ARN, ROLE_SESSION = "aws.credentials.provider.role.arn", "aws.credentials.provider.role.sessionname"
STREAM, START_AT, PUBLISHER = "flink.spark.stream", "flink.stream.initpos", "flink.stream.recordpublisher"
END_AT = "flink.spark.end"
WINDOW, PER_READ = "flink.spark.window.millis", "flink.shard.getrecords.maxrecordcount"
DISCOVERY = "flink.shard.discovery.intervalmillis"

PER_SHARD_LIMIT = (
    "there is no limit for each shard: use 'maxRecordsPerBatch' for a batch or 'maxRecordsPerTask' for a task"
)
METADATA = "the metadata of other connectors is not read: use 'metadataLocation' with a new place"
RETRIES = "each call has its own retries: use 'flink.shard.getrecords.maxretries', '.backoff.base' and '.backoff.max'"
QUIET = "not needed: a quiet stream causes no batches, except one at the end of an AvailableNow run ('probeInterval')"
CREDENTIALS = "use 'aws.credentials.provider'"
REGISTERED = (
    "use 'flink.stream.efo.registration=NONE', and the ARN of the consumer in 'flink.stream.efo.consumerarn.<stream>'"
)
PROXY = "the AWS SDK takes its proxy from the environment: set HTTPS_PROXY"
QUEUE = "tasks have no such queue: use 'maxFetchTime' for how long a task reads"
DEREGISTER = "Spark does not tell a source when its query ends: add the listener rp.spark.ConsumerDeregistration"
FLUSH = "not needed: a batch ends when every record was acknowledged"
NO_OFFSETS = "use 'startingPosition' and 'endingPosition', with JSON by shard or a time"
NOT_KAFKA = "this is not Kafka: use 'aws.region' and 'aws.endpoint'"

AWSLABS = (
    PeerOption("kinesis.endpointUrl", "aws.endpoint"),
    PeerOption("kinesis.region", "aws.region"),
    PeerOption("kinesis.kinesisRegion", "aws.region"),
    PeerOption("kinesis.streamName", STREAM),
    PeerOption("kinesis.consumerType", PUBLISHER, {"getrecords": "POLLING", "subscribetoshard": "EFO"}),
    PeerOption("kinesis.consumerName", "flink.stream.efo.consumername"),
    PeerOption("kinesis.failOnDataLoss", "flink.state.dataloss", LOSS, default="false"),
    PeerOption("kinesis.maxFetchTimePerShardSec", WINDOW, unit="s"),
    PeerOption("kinesis.startingPosition", START_AT, START),
    PeerOption("kinesis.describeShardInterval", DISCOVERY),
    PeerOption("kinesis.minBatchesToRetain", "flink.spark.claims.batches"),
    PeerOption("kinesis.stsRoleArn", ROLE_ARN, also=ROLE),
    PeerOption("kinesis.stsSessionName", ROLE_SESSION),
    PeerOption("kinesis.stsEndpointUrl", "aws.credentials.provider.role.stsendpoint"),
    PeerOption("kinesis.awsAccessKeyId", ACCESS_KEY),
    PeerOption("kinesis.awsSecretKey", SECRET_KEY),
    PeerOption("kinesis.sessionToken", TEMPORARY),
    PeerOption("kinesis.subscribeToShard.maxRetries", "flink.shard.subscribetoshard.maxretries"),
    PeerOption("kinesis.getRecords.numberOfRecordsPerFetch", PER_READ),
    PeerOption("kinesis.getRecords.fetchIntervalMs", "flink.shard.getrecords.intervalmillis"),
    PeerOption("kinesis.sink.recordMaxBufferedTimeMs", "RecordMaxBufferedTime"),
    PeerOption("kinesis.sink.maxConnections", "MaxConnections"),
    PeerOption("kinesis.sink.aggregationEnabled", "AggregationEnabled", default="true"),
    *_refused(PER_SHARD_LIMIT, "kinesis.maxFetchRecordsPerShard"),
    *_refused(QUIET, "kinesis.checkNewRecordThreads kinesis.internal.avoidEmptyBatches"),
    *_refused(METADATA,
        "kinesis.metadataCommitterType kinesis.metadataPath kinesis.metadataNumRetries kinesis.metadataRetryIntervalsMs "
        "kinesis.metadataMaxRetryIntervalMs kinesis.dynamodb.tableName kinesis.internal.maintenanceTaskIntervalSec"),
    *_refused(RETRIES, "kinesis.clientNumRetries kinesis.clientRetryIntervalsMs kinesis.clientMaxRetryIntervalMs"),
    *_refused(CREDENTIALS, "kinesis.credentialProviderClass kinesis.credentialProviderParam"),
    *_refused("use 'flink.spark.efo.window.millis'", "kinesis.subscribeToShard.timeoutSec"),
    *_refused(FLUSH, "kinesis.sink.flushWaitTimeMs"),
    *_refused("no record is dropped for its age: use 'maxOutage'", "kinesis.sink.recordTtl"),
    *_refused(QUEUE, "kinesis.internal.dataQueueCapacity kinesis.internal.maxDataQueueEmptyCount kinesis.internal.dataQueueWaitTimeoutSec"),
    *_refused(PROXY, "kinesis.sink.proxyAddress kinesis.sink.proxyPort kinesis.sink.proxyUsername kinesis.sink.proxyPassword"),
)  # fmt: skip
QUBOLE = (
    PeerOption("streamName", STREAM),
    PeerOption("endpointUrl", "aws.endpoint"),
    PeerOption("awsAccessKeyId", ACCESS_KEY),
    PeerOption("awsSecretKey", SECRET_KEY),
    PeerOption("sessionToken", TEMPORARY),
    PeerOption("regionName", "aws.region"),
    PeerOption("awsSTSRoleARN", ROLE_ARN, also=ROLE),
    PeerOption("awsSTSSessionName", ROLE_SESSION),
    PeerOption("startingPosition", START_AT, START),
    PeerOption("failondataloss", "flink.state.dataloss", LOSS),
    PeerOption("kinesis.executor.maxFetchTimeInMs", WINDOW),
    PeerOption("kinesis.executor.maxRecordPerRead", PER_READ),
    PeerOption("kinesis.client.describeShardInterval", DISCOVERY),
    PeerOption("kinesis.executor.recordMaxBufferedTime", "RecordMaxBufferedTime"),
    PeerOption("kinesis.executor.maxConnections", "MaxConnections"),
    PeerOption("kinesis.executor.aggregationEnabled", "AggregationEnabled", default="true"),
    *_refused(CREDENTIALS, "awsUseInstanceProfile"),
    *_refused(PER_SHARD_LIMIT, "kinesis.executor.maxFetchRecordsPerShard"),
    *_refused("use 'flink.shard.getrecords.intervalmillis'",
        "kinesis.executor.addIdleTimeBetweenReads kinesis.executor.idleTimeBetweenReadsInMs"),
    *_refused(RETRIES, "kinesis.client.numRetries kinesis.client.retryIntervalMs kinesis.client.maxRetryIntervalMs"),
    *_refused(QUIET, "kinesis.client.avoidEmptyBatches kinesis.client.maxParallelThreads"),
    *_refused(METADATA,
        "kinesis.executor.metadata.committer kinesis.executor.metadata.path kinesis.executor.metadata.hdfs.numretries "
        "kinesis.executor.metadata.hdfs.retryIntervalMs kinesis.executor.metadata.hdfs.maxRetryIntervalMs"),
    *_refused(FLUSH, "kniesis.executor.flushwaittimemillis"),
)  # fmt: skip
DATABRICKS = (
    PeerOption("streamName", STREAM),
    PeerOption("streamARN", STREAM),
    PeerOption("region", "aws.region"),
    PeerOption("endpoint", "aws.endpoint"),
    PeerOption("initialPosition", START_AT, START),
    PeerOption("consumerMode", PUBLISHER, {"polling": "POLLING", "efo": "EFO"}),
    PeerOption("consumerName", "flink.stream.efo.consumername"),
    PeerOption("consumerNamePrefix", "flink.stream.efo.consumername", before="consumerName", default="databricks_"),
    PeerOption("requireConsumerDeregistration", "flink.stream.efo.deregister", {"false": "NEVER"}, reason=DEREGISTER),
    PeerOption("maxRecordsPerFetch", PER_READ),
    PeerOption("minFetchPeriod", "flink.shard.getrecords.intervalmillis"),
    PeerOption("maxFetchDuration", WINDOW),
    PeerOption("shardsPerTask", "flink.spark.shards.per.task"),
    PeerOption("maxPartitions", "flink.spark.max.tasks"),
    PeerOption("shardFetchInterval", DISCOVERY),
    PeerOption("awsAccessKey", ACCESS_KEY),
    PeerOption("awsSecretKey", SECRET_KEY),
    PeerOption("roleArn", ROLE_ARN, also=ROLE),
    PeerOption("roleExternalId", "aws.credentials.provider.role.externalid"),
    PeerOption("roleSessionName", ROLE_SESSION),
    PeerOption("stsEndpoint", "aws.credentials.provider.role.stsendpoint"),
    *_refused("not needed: the driver registers the consumer, or finds it, when the query starts", "consumerRefreshInterval"),
    *_refused(REGISTERED, "registeredConsumerId registeredConsumerIdType"),
    *_refused("the limits of the service are kept without it: use 'flink.shard.getrecords.intervalmillis'", "maxFetchRate"),
    *_refused("nothing is fetched ahead: use 'maxBytesPerBatch' or 'maxBytesPerTask'", "fetchBufferSize"),
    *_refused("nothing is fetched ahead, so there are no blocks: use 'maxBytesPerTask' and 'maxTasks'",
        "coalesceThresholdBlockSize coalesceBinSize"),
    *_refused("not needed: a call lists as many shards as the service allows", "maxShardsPerDescribe"),
    *_refused(CREDENTIALS, "serviceCredential"),
)  # fmt: skip
KAFKA = (
    PeerOption("subscribe", "flink.spark.streams"),
    PeerOption("topic", STREAM),
    PeerOption("startingOffsets", START_AT, {"earliest": "TRIM_HORIZON", "latest": "LATEST"}, reason=NO_OFFSETS),
    PeerOption("startingTimestamp", START_AT, unit=EPOCH_MS),
    PeerOption("endingOffsets", END_AT, {"latest": "NOW"}, reason=NO_OFFSETS),
    PeerOption("endingTimestamp", END_AT, unit=EPOCH_MS),
    PeerOption("failOnDataLoss", "flink.state.dataloss", LOSS),
    PeerOption("maxOffsetsPerTrigger", "flink.spark.batch.records"),
    *_refused(NO_OFFSETS, "startingOffsetsByTimestamp startingOffsetsByTimestampStrategy endingOffsetsByTimestamp"),
    *_refused("use 'streams'", "assign subscribePattern"),
    *_refused("a shard is read by one task: use 'maxTasks' or 'shardsPerTask'", "minPartitions"),
    *_refused(PER_SHARD_LIMIT, "maxRecordsPerPartition"),
    *_refused("a batch does not wait for records: use a longer trigger", "minOffsetsPerTrigger maxTriggerDelay"),
    *_refused(NOT_KAFKA,
        "kafkaConsumer.pollTimeoutMs fetchOffset.numRetries fetchOffset.retryIntervalMs groupIdPrefix includeHeaders kafka.*"),
)  # fmt: skip
PEERS: Mapping[str, tuple[PeerOption, ...]] = {
    "awslabs spark-sql-kinesis-connector 2.0.0": AWSLABS,
    "qubole kinesis-sql 1.2.0": QUBOLE,
    "Databricks Runtime 19": DATABRICKS,
    "Spark 4.1 for Kafka": KAFKA,
}
"""The options of each other connector, by the connector's name and the version of its documentation."""


# --- the translation of these options (C1) --------------------------------------------------------------------------------------------

SECONDS_BELOW = 10**11
"""A number of milliseconds below this is refused, because it is probably in seconds.

It would be before 1974, when Kinesis did not exist.
"""
_BY_KEY = {option.key.lower(): option for options in PEERS.values() for option in options}
"""The options by lower-case key. If two connectors have the same key, it means the same in both."""
_AWS_ENDPOINT = re.compile(r"https?://kinesis(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/?")


def _option_of(key: str) -> PeerOption | None:
    option = _BY_KEY.get("kafka.*" if key.lower().startswith("kafka.") else key.lower())
    return None if option is None else _ours_first(option)


def peer_options() -> Mapping[str, tuple[PeerOption, ...]]:
    """Return the options of each connector. A key that is also the name of one of our options means our option, whatever `PEERS` says."""
    return {name: tuple(map(_ours_first, options)) for name, options in PEERS.items()}


def _ours_first(option: PeerOption) -> PeerOption:
    # A connector's key is never one of our keys, so what is found has it as an alias.
    own = find_property(option.key)
    return option if own is None or own.key == option.ours else PeerOption(option.key, own.key)


def _refuse_all(given: Properties) -> None:
    """Raise one error for all options without an equivalent here, because each start of Spark takes long.

    Raises: ConfigurationError if there is such an option.
    """
    found = [(key, option) for key in given if (option := _option_of(key)) is not None and option.refused]
    names = [key if option.key.endswith("*") else option.key for key, option in found]
    if names:
        further = (f"; also '{name}': {option.refused}" for name, (_, option) in zip(names[1:], found[1:], strict=True))
        raise ConfigurationError(names[0], reason=found[0][1].refused + "".join(further))


def _with_prefixes(given: Properties) -> Properties:
    """Return the options with each prefix put before the value that it belongs to.

    For example, `consumerNamePrefix` is put before `consumerName`.

    Raises: ConfigurationError if a prefix is given without the option for the value.
    """
    for option in map(_option_of, given):
        if option is None or not option.before:
            continue
        if option.before not in given:
            reason = f"it comes before the value of '{option.before}', which is not set"
            raise ConfigurationError(
                option.key, given[option.key], f"'{option.before}', or '{option.ours}' alone", reason=reason
            )
        joined = given[option.key].strip() + given[option.before].strip()
        given = given.merged({option.key: None, option.before: joined})
    return given


def _translated(option: PeerOption, value: str, given: Properties) -> dict[str, str]:
    """Return our properties for `option` with the value `value`. Raises: ConfigurationError if the value is invalid."""
    if option.unit == EPOCH_MS:
        value = _seconds(option.key, value)
    if value.startswith("{") and "at_timestamp" in value:
        value = _time_of_databricks(option.key, value)
    if option.ours == START_AT and (start := _start_at_time(option, value, given)) is not None:
        return {option.ours: start}
    if option.values:
        ours = option.values.get(value.lower())
        if ours is None:
            valid = VALID_START if option.values is START else ", ".join(option.values)
            raise ConfigurationError(option.key, value, valid, reason=option.reason)
        return {option.ours: ours}
    value = f"{value}{option.unit}" if value.isdecimal() else value
    if option.ours in (ENDPOINT.key, ROLE_STS_ENDPOINT.key) and "://" not in value:
        value = f"https://{value}"  # The Java SDK also accepts a host without scheme.
    declared = _declared(option.ours)
    try:
        Properties({declared.key: value}).value(declared)
    except ConfigurationError as error:
        raise ConfigurationError(option.key, error.value, error.valid) from None
    return {option.ours: value}


def _start_at_time(option: PeerOption, value: str, given: Properties) -> str | None:
    """Return our value for a start at a time or an age (`1h`), or None if `value` is another start.

    Raises: ConfigurationError if the time is invalid.
    """
    if parse_with_unit(value, "ms") is not None:
        return value
    if value.upper() == PositionType.AT_TIMESTAMP.value:
        if not given.is_set(INITIAL_TIMESTAMP):
            reason = f"{INITIAL_TIMESTAMP.key}, which says the time, is not set"
            raise ConfigurationError(option.key, value, VALID_START, reason=reason)
        return value.upper()
    if value.upper().startswith((AT_TIME, *"0123456789")):
        at = option_time_ms(option.key, value, given, VALID_START)
        refuse_future(option.key, at, SystemClock().now_ms())
        return iso_time(at)
    return None


def _seconds(key: str, given: str) -> str:
    """Return the epoch milliseconds in `given` as seconds.

    Raises: ConfigurationError if `given` is not a number, or is so small that it is probably in seconds already.
    """
    if not given.isdecimal() or float(given) > MAX_MS:
        raise ConfigurationError(key, given, EPOCH_MS, reason=why_no_time(given))
    if 0 < int(given) < SECONDS_BELOW:
        reason = f"it is {iso_time(int(given))}; these may be seconds: write {int(given) * 1000}"
        raise ConfigurationError(key, given, EPOCH_MS, reason=reason)
    return f"{int(given) / 1000:.3f}"


def _time_of_databricks(key: str, given: str) -> str:
    """Return `AT_TIMESTAMP <time>` for Databricks' `{"at_timestamp": <time>}`.

    Raises: ConfigurationError if the time is not in ISO-8601.
    """
    try:
        at = str(json.loads(given)["at_timestamp"])
        epoch_ms(at)
    except (ValueError, TypeError, LookupError, OverflowError):
        line = f".option('{key}', 'AT_TIMESTAMP 2026-11-22T06:00:00Z')"
        reason = "only times in ISO-8601 are read"
        raise ConfigurationError(key, given, f"{line}, with your time in ISO-8601", reason=reason) from None
    return AT_TIME + at


def _check_same(given: Properties, key: str, declared: Property[Any], value: str) -> None:
    """Check that our own key of the property, if it is given too, has the same value. Raises: ConfigurationError if it differs.

    - `key`, `value`: the other connector's option, and its value for our property.
    """
    own = next(
        (name for name in (declared.key, *declared.aliases) if name in given and name.lower() != key.lower()), None
    )
    if own is not None and given.value(declared) != declared.parse(value):
        raise _two_values(declared, key, given.get(key, value), own, given[own])


def _two_values(declared: Property[Any], key: str, value: str, other: str, others: str) -> ConfigurationError:
    """Return the error for a property that two options set: the option `key` to `value`, and the option `other` to `others`."""
    if declared.secret:
        value = others = MASK
    return ConfigurationError.conflict(key, f"{other}={others}", value=value, reason="both set the same property")


def _with_implied(own: Properties, options: Collection[PeerOption]) -> Properties:
    implied = {key: value for option in options for key, value in option.also.items() if key not in own}
    endpoint = own.get(ENDPOINT.key)
    region = _AWS_ENDPOINT.fullmatch(endpoint) if options and endpoint else None
    if region and REGION.key not in own:
        implied[REGION.key] = region[1]
    return own.merged(implied)


def _warn_of_defaults(given: Properties, own: Properties, has_default: Collection[Property[Any]]) -> None:
    """Warn of each option whose default differs between this library and the connector whose options were given."""
    keys = {key.lower() for key in given}
    for name, options in PEERS.items():
        others = {each.key.lower() for peer, them in PEERS.items() if peer != name for each in them}
        if not keys & ({each.key.lower() for each in options} - others):
            continue
        theirs_only = keys & {each.key.lower() for each in options if each.key.lower() not in _own_spellings(each)}
        for option in filter(lambda each: each.default, options):
            declared = _declared(option.ours)
            if option.before:
                if theirs_only <= {
                    "consumermode",
                    "consumername",
                }:  # A user of our own options may have guessed these names.
                    continue
                here = _without_prefix(given, own, option)
            else:
                is_ours = declared in has_default and not own.is_set(declared)
                here = f"here '{declared.key}' is {declared.default}" if is_ours else ""
            if here:
                theirs = f"'{option.key}' is {option.default} by default in {name}"
                warnings.warn(f"{theirs}; {here}: set the value that you need", UserWarning, stacklevel=4)


def _without_prefix(given: Properties, own: Properties, option: PeerOption) -> str:
    """Return the end of a warning that the other connector adds a prefix by default. Return "" if the prefix does not matter here."""
    if option.before not in given or option.key in given or not uses_fan_out(own):
        return ""
    name = own[option.ours]
    return f"here nothing is put before the name, so '{option.ours}' is {name} and not {option.default}{name}"


def _own_spellings(option: PeerOption) -> set[str]:
    return {name.lower() for name in _declared(option.ours).aliases} if option.ours else set()


def _declared(key: str) -> Property[Any]:
    return next(each for each in declared_properties() if each.key == key)
