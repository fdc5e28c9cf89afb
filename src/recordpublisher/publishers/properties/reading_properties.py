"""The properties of reading: access to the service, the publishers, and the retries of their calls."""

from ..service_limits import GET_RECORDS_RECORDS, ITERATOR_SECONDS
from .declaration import PropertyGroup, PropertyValues, epoch_ms, parse_with_unit
from .retry_properties import retry_properties

ACCESS = PropertyGroup("Access")
REGION = ACCESS.text(
    "aws.region",
    "The AWS region of streams given by name. Not set: that of the ARNs or the environment.",
)
ENDPOINT = ACCESS.text("aws.endpoint", "Another endpoint than the region's.")
REGION_ENDPOINT = ACCESS.prefix(
    "aws.endpoint.", "Another endpoint for one region, if the streams of a job are in several regions."
)
CREDENTIALS_PROVIDER = ACCESS.choice(
    "aws.credentials.provider",
    "Credentials provider; BASIC when both basic keys are set, otherwise AUTO (the SDK's chain).",
    "AUTO",
    ("AUTO", "ENV_VAR", "PROFILE", "BASIC", "ASSUME_ROLE", "WEB_IDENTITY_TOKEN"),
)
ACCESS_KEY_ID = ACCESS.text("aws.credentials.provider.basic.accesskeyid", "Access key id for BASIC.", secret=True)
SECRET_KEY = ACCESS.text("aws.credentials.provider.basic.secretkey", "Secret key for BASIC.", secret=True)
SESSION_TOKEN = ACCESS.text("aws.credentials.provider.basic.sessiontoken", "Session token for BASIC.", secret=True)
PROFILE_NAME = ACCESS.text("aws.credentials.provider.profile.name", "Profile for PROFILE.")
PROFILE_PATH = ACCESS.text("aws.credentials.provider.profile.path", "Credentials file for PROFILE.")
ROLE_ARN = ACCESS.text("aws.credentials.provider.role.arn", "Role for ASSUME_ROLE and WEB_IDENTITY_TOKEN.")
STREAM_ROLE_ARN = ACCESS.prefix(
    "aws.credentials.provider.role.arn.",
    "Role for a stream given by ARN, by the stream's name or its account's id.",
)
ROLE_SESSION = ACCESS.text(
    "aws.credentials.provider.role.sessionname", "Session name of the role.", default="recordpublisher"
)
ROLE_EXTERNAL_ID = ACCESS.text("aws.credentials.provider.role.externalid", "External id of the role.")
ROLE_STS_ENDPOINT = ACCESS.text("aws.credentials.provider.role.stsendpoint", "Another STS endpoint.")
WEB_IDENTITY_FILE = ACCESS.text("aws.credentials.provider.webidentitytoken.file", "Token file for WEB_IDENTITY_TOKEN.")
REQUEST_TIMEOUT = ACCESS.integer(
    "aws.request.timeout",
    "Deadline of one call, except for subscriptions.",
    30_000,
    minimum=1,
    unit="ms",
    bare_from=1_000,
)
HTTP_CLIENT = ACCESS.choice(
    "aws.http.client",
    "HTTP client of frequent calls: OWN, plain HTTP/1.1 at a fraction of the CPU; or SDK, with its hooks. Through a "
    "proxy always SDK.",
    "OWN",
    ("OWN", "SDK"),
)

PUBLISHER = PropertyGroup("Publisher")
RECORD_PUBLISHER = PUBLISHER.plugin_name(
    "flink.stream.recordpublisher",
    "The publisher that reads the shards: POLLING, EFO, QUEUE, DYNAMODB_STREAMS, ARCHIVE, or that of a plugin, so type checkers accept any "
    "text.",
    "POLLING",
    argument="publisher",
)

ARCHIVE_READING = PropertyGroup("Archives")
ARCHIVE_URI = ARCHIVE_READING.text(
    "flink.archive.uri",
    "The archive that the publisher ARCHIVE reads, which a job with `flink.sink.archive` wrote: the folder or object location of the sink "
    "jsonl or parquet, delta: and the location of a table, or iceberg:namespace.table with the catalogue of `flink.sink.iceberg.catalog.`.",
)
ARCHIVE_LIVE = ARCHIVE_READING.plugin_name(
    "flink.archive.live",
    "The publisher that reads what comes after the archive: POLLING, EFO or that of a plugin. NONE ends the job with the archive.",
    "POLLING",
)
ARCHIVE_UNPROVEN = ARCHIVE_READING.boolean(
    "flink.archive.unproven",
    "Whether files are read that were written without `flink.sink.archive`, and rows of tables of which some were deleted or changed. "
    "Records that are missing between them are not found.",
    False,
)


def uses_fan_out(properties: PropertyValues) -> bool:
    """Return whether the job's publisher is EFO."""
    return properties.value(RECORD_PUBLISHER) == "EFO"


def _age_or_time(text: str) -> None:
    """Check a start that is an age or a time. Raises: ValueError or OverflowError if `text` is neither."""
    if parse_with_unit(text, "ms") is None:
        epoch_ms(text)


INITIAL_POSITION = PUBLISHER.choice(
    "flink.stream.initpos",
    "Where a new job starts. LATEST and an age become a time of the service's clock once.",
    "LATEST",
    ("TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"),
    note="with flink.stream.initpos.timestamp",
    other=_age_or_time,
    valid_other="earliest, an age such as 1h, or a time: 2026-11-22T06:00:00Z, epoch seconds",
    argument="start",
)
INITIAL_TIMESTAMP = PUBLISHER.text(
    "flink.stream.initpos.timestamp",
    "Start for AT_TIMESTAMP: epoch seconds, ISO-8601 with a zone, or text in the given format (UTC without one).",
    argument="start_timestamp",
)
INITIAL_TIMESTAMP_FORMAT = PUBLISHER.text(
    "flink.stream.initpos.timestamp.format",
    "Java SimpleDateFormat of the start timestamp, with a year.",
    "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    argument="start_timestamp_format",
)

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

FAN_OUT = PropertyGroup("Fan-out")
CONSUMER_NAME = FAN_OUT.text(
    "flink.stream.efo.consumername",
    "Name of the stream consumer, unique for each independent job; required for LAZY and EAGER.",
    argument="consumer_name",
)
REGISTRATION = FAN_OUT.choice(
    "flink.stream.efo.registration",
    "When the consumer is registered: LAZY at start-up, EAGER at construction, NONE not by this job.",
    "LAZY",
    ("LAZY", "EAGER", "NONE"),
    aliases=("flink.stream.efo.registrar",),
)
CONSUMER_ARN = FAN_OUT.prefix(
    "flink.stream.efo.consumerarn.", "ARN of the consumer of a stream; one for each stream with NONE."
)
CONSUMER_TAGS = FAN_OUT.tags(
    "flink.stream.efo.tags", "Tags of a consumer that this job registers: key=value, separated by commas."
)
REGISTER_TIMEOUT = FAN_OUT.integer(
    "flink.stream.registerstreamconsumer.timeout",
    "How long to wait for the consumer to become ACTIVE.",
    60,
    minimum=1,
    unit="s",
)
DEREGISTER_TIMEOUT = FAN_OUT.integer(
    "flink.stream.deregisterstreamconsumer.timeout", "How long to wait for a deregistration.", 60, minimum=1, unit="s"
)
SUBSCRIBE_TIMEOUT = FAN_OUT.integer(
    "flink.shard.subscribetoshard.timeout", "Deadline for opening a subscription.", 60, minimum=1, unit="s"
)
HTTP_PROTOCOL = FAN_OUT.choice(
    "aws.http.protocol.version",
    "Protocol of SubscribeToShard: HTTP2 has many subscriptions on a connection (extra http2).",
    "HTTP1_1",
    ("HTTP1_1", "HTTP2"),
)
DEREGISTRATION = FAN_OUT.choice(
    "flink.stream.efo.deregister",
    "When a LAZY or EAGER consumer is deregistered: LAST_OUT by the last worker of a process (GROUP: the last process of the group), "
    "unless a run failed; NEVER only by command. A query of Spark never does.",
    "LAST_OUT",
    ("LAST_OUT", "NEVER"),
)
RECOVERABLE_ERRORS = FAN_OUT.prefix(
    "flink.shard.consumer.error.recoverable[", "Names of further errors that are retried, indexed from 0 (FLINK-33260)."
)

QUEUE = PropertyGroup("Queues")
QUEUE_NAME = QUEUE.text(
    "flink.queue.name", "The queue of the stream, as a name or an ARN; the publisher QUEUE needs it.", argument="queue"
)
QUEUE_CREATION = QUEUE.choice(
    "flink.queue.create",
    "When a queue that does not exist is created: LAZY at start-up, EAGER at construction, NONE not by this job. It is never deleted.",
    "LAZY",
    ("LAZY", "EAGER", "NONE"),
)
VISIBILITY_TIMEOUT = QUEUE.integer(
    "flink.queue.visibility.timeout",
    "How long a received record is hidden from others; prolonged while it is worked on.",
    30,
    minimum=5,
    maximum=43_200,
    unit="s",
)
RECEIVERS = QUEUE.integer(
    "flink.queue.receivers",
    "The most receivers of a process, each with a call at a time; a back-log starts more than one.",
    8,
    minimum=1,
    maximum=1_000,
    unit="receivers",
)
RECEIVE_WAIT = QUEUE.integer(
    "flink.queue.wait", "How long a receive waits for records; a stop waits for it.", 5, minimum=1, maximum=20, unit="s"
)
DUPLICATES = QUEUE.choice(
    "flink.queue.duplicates",
    "What becomes of a record that this process has acknowledged and receives again: it is counted, and passed on or dropped.",
    "COUNT",
    ("COUNT", "DROP"),
)

RETRIES = PropertyGroup("Retries")
GETRECORDS_RETRIES = retry_properties(RETRIES, "flink.shard.getrecords", "GetRecords", 3, 300, 1_000)
GETITERATOR_RETRIES = retry_properties(RETRIES, "flink.shard.getiterator", "GetShardIterator", 3, 300, 1_000)
LIST_SHARDS_RETRIES = retry_properties(RETRIES, "flink.list.shards", "ListShards", 10, 1_000, 5_000)
DESCRIBE_STREAM_RETRIES = retry_properties(RETRIES, "flink.stream.describe", "DescribeStreamSummary", 50, 2_000, 5_000)
DESCRIBE_CONSUMER_RETRIES = retry_properties(
    RETRIES,
    "flink.stream.describestreamconsumer",
    "DescribeStreamConsumer",
    50,
    2_000,
    5_000,
    # The FLIP names the properties after ListStreamConsumers. We call DescribeStreamConsumer, as the connector does, and accept both.
    also="flink.stream.liststreamconsumers",
)
REGISTER_RETRIES = retry_properties(
    RETRIES, "flink.stream.registerstreamconsumer", "RegisterStreamConsumer", 10, 200, 1_000, ("", "500", "2000")
)
DEREGISTER_RETRIES = retry_properties(
    RETRIES, "flink.stream.deregisterstreamconsumer", "DeregisterStreamConsumer", 10, 200, 1_000, ("", "500", "2000")
)
SUBSCRIBE_RETRIES = retry_properties(
    RETRIES, "flink.shard.subscribetoshard", "SubscribeToShard", 5, 1_000, 2_000, ("10", "", "")
)
ALL_RETRIES = (
    GETRECORDS_RETRIES, GETITERATOR_RETRIES, LIST_SHARDS_RETRIES, DESCRIBE_STREAM_RETRIES, DESCRIBE_CONSUMER_RETRIES,
    REGISTER_RETRIES, DEREGISTER_RETRIES, SUBSCRIBE_RETRIES,
)  # fmt: skip
