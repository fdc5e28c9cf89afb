"""The table of the options of other connectors, and ours. Options are translated with it, and the documentation shows it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from recordpublisher.publishers.properties.times import OTHER_NAMES


@dataclass(frozen=True, slots=True)
class PeerOption:
    """One option of another connector. It is translated to our property `ours`, or refused with a reason. A `key` with `.*` is a prefix.

    - `values`: their values (lower case) and ours, if they differ. Other values are refused, for the `reason`.
    - `unit`: the unit of their plain numbers, if it differs from ours.
    - `also`: properties that the option implies.
    - `before`: their option whose value this option is a prefix of.
    - `default`: their default, if it means something else than ours.
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
START = {"latest": "LATEST", "trim_horizon": "TRIM_HORIZON", **OTHER_NAMES}
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
QUIET = "not needed: a quiet stream runs no batches but one at the end of an AvailableNow run ('probeInterval')"
CREDENTIALS = "use 'aws.credentials.provider'"
REGISTERED = (
    "use 'flink.stream.efo.registration=NONE', and the ARN of the consumer in 'flink.stream.efo.consumerarn.<stream>'"
)
PROXY = "the AWS SDK's proxy is taken: set HTTPS_PROXY in the environment"
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
"""The options by name and version of the connector whose documentation has the keys."""
