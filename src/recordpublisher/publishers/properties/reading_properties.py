"""The properties of reading with every publisher: access to the service, the publisher and its start, archives, retries of calls."""

from .declaration import PropertyGroup, PropertyValues
from .retry_properties import retry_properties
from .times_and_sizes import epoch_ms, parse_with_unit

ACCESS = PropertyGroup("Access")
REGION = ACCESS.text(
    "aws.region",
    "The AWS region of streams given by name. Not set: the region in the ARNs or in the environment.",
)
ENDPOINT = ACCESS.text("aws.endpoint", "An endpoint to call instead of the region's own.")
REGION_ENDPOINT = ACCESS.prefix(
    "aws.endpoint.", "An endpoint to call instead of one region's own, if the streams of a job are in several regions."
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
ROLE_STS_ENDPOINT = ACCESS.text(
    "aws.credentials.provider.role.stsendpoint", "An STS endpoint to call instead of the default one."
)
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
    "The publisher that reads the shards: POLLING, EFO, QUEUE, DYNAMODB_STREAMS, ARCHIVE, or that of a plugin. Type checkers accept any "
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
    "The publisher that reads what comes after the archive: POLLING, EFO or that of a plugin. NONE ends the job with the archive, and "
    "needs one process: flink.job.workers=ALONE.",
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
    """Check that a job may start at `text`: it is an age, such as `1h`, or a time. Raises: ValueError or OverflowError if it is neither."""
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
