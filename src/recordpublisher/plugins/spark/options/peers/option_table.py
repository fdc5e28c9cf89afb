"""The options of other connectors, and ours: the table by which they are translated, and which the documentation shows."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PeerOption:
    """One option of another connector: taken as our property `ours`, or refused with the reason. A `key` with `.*` stands for a prefix.

    - `values`: theirs (lower case) to ours, where they differ; others are refused, for the `reason`.
    - `unit`: the unit of their plain numbers, where it differs from ours.
    - `also`: what the option implies.
    - `before`: their option whose value it comes before.
    - `default`: their default, where it means something else than ours.
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


EPOCH_MS = "epoch ms"
START = {"latest": "LATEST", "trim_horizon": "TRIM_HORIZON", "earliest": "TRIM_HORIZON"}
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
PAUSE = "use 'flink.shard.getrecords.intervalmillis'"
QUIET = "not needed: a quiet stream runs no batches ('probeInterval')"
CREDENTIALS = "use 'aws.credentials.provider'"
REGISTERED = (
    "use 'flink.stream.efo.registration=NONE', and the ARN of the consumer in 'flink.stream.efo.consumerarn.<stream>'"
)
BLOCKS = "nothing is fetched ahead, so there are no blocks: use 'maxBytesPerTask' and 'maxTasks'"
ONCE = "not needed: the driver registers the consumer, or finds it, when the query starts"
PROXY = "the AWS SDK's proxy is taken: set HTTPS_PROXY in the environment"
QUEUE = "tasks have no such queue: use 'maxFetchTime' for how long a task reads"
PREFETCH = "nothing is fetched ahead: use 'maxBytesPerBatch' or 'maxBytesPerTask'"
DEREGISTER = "Spark does not tell a source when its query ends: add the listener rp.spark.ConsumerDeregistration"
FLUSH = "not needed: a batch ends when every record was acknowledged"
NO_OFFSETS = "use 'startingPosition' and 'endingPosition', with JSON by shard or a time"
NO_TOPICS = "use 'streams'"
TASKS = "a shard is read by one task: use 'maxTasks' or 'shardsPerTask'"
NO_DELAY = "a batch does not wait for records: use a longer trigger"
NOT_KAFKA = "this is no Kafka: use 'aws.region' and 'aws.endpoint'"

AWSLABS = (
    PeerOption("kinesis.endpointUrl", "aws.endpoint"),
    PeerOption("kinesis.region", "aws.region"),
    PeerOption("kinesis.kinesisRegion", "aws.region"),
    PeerOption("kinesis.streamName", STREAM),
    PeerOption("kinesis.consumerType", PUBLISHER, {"getrecords": "POLLING", "subscribetoshard": "EFO"}),
    PeerOption("kinesis.consumerName", "flink.stream.efo.consumername"),
    PeerOption("kinesis.failOnDataLoss", "flink.state.dataloss", LOSS, default="false"),
    PeerOption("kinesis.maxFetchRecordsPerShard", refused=PER_SHARD_LIMIT),
    PeerOption("kinesis.maxFetchTimePerShardSec", WINDOW, unit="s"),
    PeerOption("kinesis.startingPosition", START_AT, START),
    PeerOption("kinesis.describeShardInterval", DISCOVERY),
    PeerOption("kinesis.minBatchesToRetain", "flink.spark.claims.batches"),
    PeerOption("kinesis.checkNewRecordThreads", refused=QUIET),
    PeerOption("kinesis.metadataCommitterType", refused=METADATA),
    PeerOption("kinesis.metadataPath", refused=METADATA),
    PeerOption("kinesis.metadataNumRetries", refused=METADATA),
    PeerOption("kinesis.metadataRetryIntervalsMs", refused=METADATA),
    PeerOption("kinesis.metadataMaxRetryIntervalMs", refused=METADATA),
    PeerOption("kinesis.dynamodb.tableName", refused=METADATA),
    PeerOption("kinesis.clientNumRetries", refused=RETRIES),
    PeerOption("kinesis.clientRetryIntervalsMs", refused=RETRIES),
    PeerOption("kinesis.clientMaxRetryIntervalMs", refused=RETRIES),
    PeerOption("kinesis.stsRoleArn", ROLE_ARN, also=ROLE),
    PeerOption("kinesis.stsSessionName", ROLE_SESSION),
    PeerOption("kinesis.stsEndpointUrl", "aws.credentials.provider.role.stsendpoint"),
    PeerOption("kinesis.awsAccessKeyId", ACCESS_KEY),
    PeerOption("kinesis.awsSecretKey", SECRET_KEY),
    PeerOption("kinesis.sessionToken", TEMPORARY),
    PeerOption("kinesis.credentialProviderClass", refused=CREDENTIALS),
    PeerOption("kinesis.credentialProviderParam", refused=CREDENTIALS),
    PeerOption("kinesis.subscribeToShard.timeoutSec", refused="use 'flink.spark.efo.window.millis'"),
    PeerOption("kinesis.subscribeToShard.maxRetries", "flink.shard.subscribetoshard.maxretries"),
    PeerOption("kinesis.getRecords.numberOfRecordsPerFetch", PER_READ),
    PeerOption("kinesis.getRecords.fetchIntervalMs", "flink.shard.getrecords.intervalmillis"),
    PeerOption("kinesis.sink.flushWaitTimeMs", refused=FLUSH),
    PeerOption("kinesis.sink.recordMaxBufferedTimeMs", "RecordMaxBufferedTime"),
    PeerOption("kinesis.sink.maxConnections", "MaxConnections"),
    PeerOption("kinesis.sink.aggregationEnabled", "AggregationEnabled", default="true"),
    PeerOption(
        "kinesis.sink.recordTtl",
        refused="no record is dropped for its age: use 'flink.sink.kinesis.putrecords.maxretries'",
    ),
    PeerOption("kinesis.internal.dataQueueCapacity", refused=QUEUE),
    PeerOption("kinesis.internal.maxDataQueueEmptyCount", refused=QUEUE),
    PeerOption("kinesis.internal.dataQueueWaitTimeoutSec", refused=QUEUE),
    PeerOption("kinesis.internal.maintenanceTaskIntervalSec", refused=METADATA),
    PeerOption("kinesis.internal.avoidEmptyBatches", refused=QUIET),
    PeerOption("kinesis.sink.proxyAddress", refused=PROXY),
    PeerOption("kinesis.sink.proxyPort", refused=PROXY),
    PeerOption("kinesis.sink.proxyUsername", refused=PROXY),
    PeerOption("kinesis.sink.proxyPassword", refused=PROXY),
)
QUBOLE = (
    PeerOption("streamName", STREAM),
    PeerOption("endpointUrl", "aws.endpoint"),
    PeerOption("awsAccessKeyId", ACCESS_KEY),
    PeerOption("awsSecretKey", SECRET_KEY),
    PeerOption("sessionToken", TEMPORARY),
    PeerOption("regionName", "aws.region"),
    PeerOption("awsSTSRoleARN", ROLE_ARN, also=ROLE),
    PeerOption("awsSTSSessionName", ROLE_SESSION),
    PeerOption("awsUseInstanceProfile", refused=CREDENTIALS),
    PeerOption("startingPosition", START_AT, START),
    PeerOption("failondataloss", "flink.state.dataloss", LOSS),
    PeerOption("kinesis.executor.maxFetchTimeInMs", WINDOW),
    PeerOption("kinesis.executor.maxFetchRecordsPerShard", refused=PER_SHARD_LIMIT),
    PeerOption("kinesis.executor.maxRecordPerRead", PER_READ),
    PeerOption("kinesis.executor.addIdleTimeBetweenReads", refused=PAUSE),
    PeerOption("kinesis.executor.idleTimeBetweenReadsInMs", refused=PAUSE),
    PeerOption("kinesis.client.describeShardInterval", DISCOVERY),
    PeerOption("kinesis.client.numRetries", refused=RETRIES),
    PeerOption("kinesis.client.retryIntervalMs", refused=RETRIES),
    PeerOption("kinesis.client.maxRetryIntervalMs", refused=RETRIES),
    PeerOption("kinesis.client.avoidEmptyBatches", refused=QUIET),
    PeerOption("kinesis.client.maxParallelThreads", refused=QUIET),
    PeerOption("kinesis.executor.metadata.committer", refused=METADATA),
    PeerOption("kinesis.executor.metadata.path", refused=METADATA),
    PeerOption("kinesis.executor.metadata.hdfs.numretries", refused=METADATA),
    PeerOption("kinesis.executor.metadata.hdfs.retryIntervalMs", refused=METADATA),
    PeerOption("kinesis.executor.metadata.hdfs.maxRetryIntervalMs", refused=METADATA),
    PeerOption("kinesis.executor.recordMaxBufferedTime", "RecordMaxBufferedTime"),
    PeerOption("kinesis.executor.maxConnections", "MaxConnections"),
    PeerOption("kinesis.executor.aggregationEnabled", "AggregationEnabled", default="true"),
    PeerOption("kniesis.executor.flushwaittimemillis", refused=FLUSH),
)
DATABRICKS = (
    PeerOption("streamName", STREAM),
    PeerOption("streamARN", STREAM),
    PeerOption("region", "aws.region"),
    PeerOption("endpoint", "aws.endpoint"),
    PeerOption("initialPosition", START_AT, START),
    PeerOption("consumerMode", PUBLISHER, {"polling": "POLLING", "efo": "EFO"}),
    PeerOption("consumerName", "flink.stream.efo.consumername"),
    PeerOption("consumerNamePrefix", "flink.stream.efo.consumername", before="consumerName", default="databricks_"),
    PeerOption("consumerRefreshInterval", refused=ONCE),
    PeerOption("registeredConsumerId", refused=REGISTERED),
    PeerOption("registeredConsumerIdType", refused=REGISTERED),
    PeerOption("requireConsumerDeregistration", "flink.stream.efo.deregister", {"false": "NEVER"}, reason=DEREGISTER),
    PeerOption("maxRecordsPerFetch", PER_READ),
    PeerOption("maxFetchRate", refused="the limits of the service are kept without it: use 'flink.shard.getrecords.intervalmillis'"),
    PeerOption("minFetchPeriod", "flink.shard.getrecords.intervalmillis"),
    PeerOption("maxFetchDuration", WINDOW),
    PeerOption("fetchBufferSize", refused=PREFETCH),
    PeerOption("shardsPerTask", "flink.spark.shards.per.task"),
    PeerOption("maxPartitions", "flink.spark.max.tasks"),
    PeerOption("coalesceThresholdBlockSize", refused=BLOCKS),
    PeerOption("coalesceBinSize", refused=BLOCKS),
    PeerOption("shardFetchInterval", DISCOVERY),
    PeerOption("maxShardsPerDescribe", refused="not needed: a call lists as many shards as the service allows"),
    PeerOption("awsAccessKey", ACCESS_KEY),
    PeerOption("awsSecretKey", SECRET_KEY),
    PeerOption("roleArn", ROLE_ARN, also=ROLE),
    PeerOption("roleExternalId", "aws.credentials.provider.role.externalid"),
    PeerOption("roleSessionName", ROLE_SESSION),
    PeerOption("stsEndpoint", "aws.credentials.provider.role.stsendpoint"),
    PeerOption("serviceCredential", refused=CREDENTIALS),
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
    PeerOption("startingOffsetsByTimestamp", refused=NO_OFFSETS),
    PeerOption("startingOffsetsByTimestampStrategy", refused=NO_OFFSETS),
    PeerOption("endingOffsetsByTimestamp", refused=NO_OFFSETS),
    PeerOption("assign", refused=NO_TOPICS),
    PeerOption("subscribePattern", refused=NO_TOPICS),
    PeerOption("minPartitions", refused=TASKS),
    PeerOption("maxRecordsPerPartition", refused=PER_SHARD_LIMIT),
    PeerOption("minOffsetsPerTrigger", refused=NO_DELAY),
    PeerOption("maxTriggerDelay", refused=NO_DELAY),
    PeerOption("kafkaConsumer.pollTimeoutMs", refused=NOT_KAFKA),
    PeerOption("fetchOffset.numRetries", refused=NOT_KAFKA),
    PeerOption("fetchOffset.retryIntervalMs", refused=NOT_KAFKA),
    PeerOption("groupIdPrefix", refused=NOT_KAFKA),
    PeerOption("includeHeaders", refused=NOT_KAFKA),
    PeerOption("kafka.*", refused=NOT_KAFKA),
)
PEERS: Mapping[str, tuple[PeerOption, ...]] = {
    "awslabs spark-sql-kinesis-connector 2.0.0": AWSLABS,
    "qubole kinesis-sql 1.2.0": QUBOLE,
    "Databricks Runtime 19": DATABRICKS,
    "Spark 4.1 for Kafka": KAFKA,
}
"""By name and version of the documentation that the keys are from."""
