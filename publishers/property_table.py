"""Every property, declared once (C1).

The FLIP's keys have the FLIP's defaults, the connector's have the connector's, and ours follow the same spelling.
"""

from __future__ import annotations

from .properties import declare_without_meaning
from .property_retries import *  # noqa: F403 - one index of every property
from .property_types import boolean, choice, integer, optional_integer, prefix, text

# --- access -----------------------------------------------------------------------------------------------------------------------
REGION = text("aws.region", "The AWS region; taken from a stream ARN or the environment when not set.", group="Access")
ENDPOINT = text("aws.endpoint", "Another endpoint than the region's, for example an embedded one.", group="Access")
CREDENTIALS_PROVIDER = choice(
    "aws.credentials.provider",
    "Where credentials come from; BASIC when both basic keys are set, otherwise AUTO (the SDK's chain).",
    "AUTO",
    ("AUTO", "ENV_VAR", "PROFILE", "BASIC", "ASSUME_ROLE", "WEB_IDENTITY_TOKEN"),
    group="Access",
)
ACCESS_KEY_ID = text(
    "aws.credentials.provider.basic.accesskeyid", "Access key id for BASIC.", group="Access", secret=True
)
SECRET_KEY = text("aws.credentials.provider.basic.secretkey", "Secret key for BASIC.", group="Access", secret=True)
SESSION_TOKEN = text(
    "aws.credentials.provider.basic.sessiontoken", "Session token for BASIC.", group="Access", secret=True
)
PROFILE_NAME = text("aws.credentials.provider.profile.name", "Profile for PROFILE.", group="Access")
PROFILE_PATH = text("aws.credentials.provider.profile.path", "Credentials file for PROFILE.", group="Access")
ROLE_ARN = text("aws.credentials.provider.role.arn", "Role for ASSUME_ROLE and WEB_IDENTITY_TOKEN.", group="Access")
ROLE_SESSION = text(
    "aws.credentials.provider.role.sessionname", "Session name of the role.", default="recordpublisher", group="Access"
)
ROLE_EXTERNAL_ID = text("aws.credentials.provider.role.externalid", "External id of the role.", group="Access")
ROLE_STS_ENDPOINT = text("aws.credentials.provider.role.stsendpoint", "Another STS endpoint.", group="Access")
WEB_IDENTITY_FILE = text(
    "aws.credentials.provider.webidentitytoken.file", "Token file for WEB_IDENTITY_TOKEN.", group="Access"
)
REQUEST_TIMEOUT = integer(
    "aws.request.timeout", "Deadline of one call, subscriptions aside.", 30_000, 1, unit="ms", group="Access"
)

# --- which publisher, from where --------------------------------------------------------------------------------------------------
RECORD_PUBLISHER = text(
    "flink.stream.recordpublisher",
    "The publisher that reads the shards: POLLING, EFO, or a plugin's name (P5).",
    "POLLING",
    group="Publisher",
)
INITIAL_POSITION = choice(
    "flink.stream.initpos",
    "Where a new job starts. LATEST is pinned to a timestamp of the server's clock once (P3).",
    "LATEST",
    ("TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"),
    group="Publisher",
)
INITIAL_TIMESTAMP = text(
    "flink.stream.initpos.timestamp",
    "Start for AT_TIMESTAMP: epoch seconds, ISO-8601, or text in the given format.",
    group="Publisher",
)
INITIAL_TIMESTAMP_FORMAT = text(
    "flink.stream.initpos.timestamp.format",
    "Java SimpleDateFormat of the start timestamp; ISO-8601 when not set.",
    "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    group="Publisher",
)

# --- fan-out ------------------------------------------------------------------------------------------------------------------------
CONSUMER_NAME = text(
    "flink.stream.efo.consumername",
    "Name of the stream consumer, unique for each independent job; required for LAZY and EAGER.",
    group="Fan-out",
)
REGISTRATION = choice(
    "flink.stream.efo.registration",
    "Who registers the consumer: LAZY at start-up, EAGER at construction, NONE somebody else.",
    "LAZY",
    ("LAZY", "EAGER", "NONE"),
    aliases=("flink.stream.efo.registrar",),
    group="Fan-out",
)
CONSUMER_ARN = prefix(
    "flink.stream.efo.consumerarn.", "ARN of the consumer of a stream; one for each stream with NONE.", group="Fan-out"
)
REGISTER_TIMEOUT = integer(
    "flink.stream.registerstreamconsumer.timeout",
    "How long to wait for the consumer to become ACTIVE.",
    60,
    1,
    unit="s",
    group="Fan-out",
)
DEREGISTER_TIMEOUT = integer(
    "flink.stream.deregisterstreamconsumer.timeout",
    "How long to wait for a deregistration.",
    60,
    1,
    unit="s",
    group="Fan-out",
)
SUBSCRIBE_TIMEOUT = integer(
    "flink.shard.subscribetoshard.timeout", "Deadline for opening a subscription.", 60, 1, unit="s", group="Fan-out"
)
INACTIVITY_TIMEOUT = integer(
    "flink.shard.subscribetoshard.inactivity.timeout",
    "A subscription without any event for this long is half open and is opened again (F5; the service sends one about every 5 s).",
    20_000,
    1,
    unit="ms",
    group="Fan-out",
)
UNREAD_TIMEOUT = integer(
    "flink.shard.subscribetoshard.unread.timeout",
    "A subscription left unread for this long under back-pressure is closed and opened again when there is room (F5).",
    60_000,
    1,
    unit="ms",
    group="Fan-out",
)
DEREGISTRATION = choice(
    "flink.stream.efo.deregister",
    "When a LAZY or EAGER consumer is deregistered (F8): LAST_OUT by the last subtask that stops cleanly, or NEVER (by command).",
    "LAST_OUT",
    ("LAST_OUT", "NEVER"),
    group="Fan-out",
)
RECOVERABLE_ERRORS = prefix(
    "flink.shard.consumer.error.recoverable[",
    "Names of further errors that are retried, counted from 0 (FLINK-33260).",
    group="Fan-out",
)

# --- polling --------------------------------------------------------------------------------------------------------------------------
GETRECORDS_MAX = integer(
    "flink.shard.getrecords.maxrecordcount",
    "Records asked for by one GetRecords call.",
    10_000,
    1,
    10_000,
    unit="records",
    group="Polling",
)
GETRECORDS_INTERVAL = integer(
    "flink.shard.getrecords.intervalmillis",
    "From loop to loop (R1); below the iterator's five minutes.",
    200,
    0,
    299_999,
    unit="ms",
    group="Polling",
)
ADAPTIVE_READS = boolean(
    "flink.shard.adaptivereads",
    "Size each read from the mean record size, so that 2 MiB/s a shard are used well (R1).",
    False,
    group="Polling",
)

# --- discovery and state --------------------------------------------------------------------------------------------------------------
DISCOVERY_INTERVAL = integer(
    "flink.shard.discovery.intervalmillis",
    "Between two looks for new shards (S3); -1 never.",
    10_000,
    1,
    also=(-1,),
    unit="ms",
    group="Discovery and state",
)
SHARD_ASSIGNER = text(
    "flink.shard.assigner",
    "Which subtask reads which shard (S9): UNIFORM or a plugin's name.",
    "UNIFORM",
    group="Discovery and state",
)
ON_DATA_LOSS = choice(
    "flink.state.dataloss",
    "When the position is past retention (S5): FAIL with the gap named, or CONTINUE and count it.",
    "FAIL",
    ("FAIL", "CONTINUE"),
    group="Discovery and state",
)
STATE_URI = text(
    "flink.state.uri", "Where checkpoints are kept: a path or a registered store's URI.", group="Discovery and state"
)
CHECKPOINT_INTERVAL = integer(
    "flink.state.checkpoint.interval",
    "Between two checkpoints when a state store is given; -1 only on stop.",
    10_000,
    1,
    also=(-1,),
    unit="ms",
    group="Discovery and state",
)

# --- values and time --------------------------------------------------------------------------------------------------------------------
DESERIALIZER = text(
    "flink.deserializer",
    "How a record becomes a value: bytes, text, json, or a plugin's name.",
    "bytes",
    group="Values and time",
)
ON_POISON = choice(
    "flink.deserializer.error",
    "A record that cannot be deserialised (S7): FAIL, or SKIP and count.",
    "FAIL",
    ("FAIL", "SKIP"),
    group="Values and time",
)
TIMESTAMP_FIELD = text(
    "flink.watermark.timestamp.field",
    "JSON field with the event time, epoch ms or ISO-8601; arrival time when not set.",
    group="Values and time",
)
OUT_OF_ORDERNESS = integer(
    "flink.watermark.outoforderness.millis",
    "Bound of the out-of-orderness within a shard: how far the watermark stays behind.",
    0,
    unit="ms",
    group="Values and time",
)
FUTURE_LIMIT = integer(
    "flink.watermark.future.limit",
    "An event time further ahead of its arrival counts as the arrival time for watermarks (W12); -1 off.",
    3_600_000,
    also=(-1,),
    unit="ms",
    group="Values and time",
)
WATERMARK_STRATEGY = text(
    "flink.watermark.strategy",
    "From event times to watermarks: BOUNDED or a plugin's name.",
    "BOUNDED",
    group="Values and time",
)
LOOKAHEAD = optional_integer(
    "flink.watermark.lookahead.millis",
    "Event-time alignment: how far a record's watermark may be ahead of the global one (W8). Not set: off; 0 is a value.",
    unit="ms",
    connector="0, raised to three sync intervals",
    group="Values and time",
)
IDLE_INTERVAL = integer(
    "flink.shard.idle.interval",
    "Evidence of silence after which a shard is idle (W3); -1 waits for every shard (W2).",
    -1,
    1,
    also=(-1,),
    unit="ms",
    group="Values and time",
)
SYNC_INTERVAL = integer(
    "flink.watermark.sync.interval",
    "Between two refreshes of the global watermark (W7).",
    1_000,
    1,
    unit="ms",
    group="Values and time",
    connector="30000",
)
EMIT_INTERVAL = integer(
    "flink.watermark.emit.interval",
    "At most so often a sink hears the watermark (W1).",
    200,
    0,
    unit="ms",
    group="Values and time",
)
TRACKER = text(
    "flink.watermark.tracker",
    "What carries the global watermark: IN_PROCESS, TCP, or a plugin's name (W10).",
    "IN_PROCESS",
    group="Values and time",
)
TRACKER_ADDRESS = text("flink.watermark.tracker.address", "host:port of the tracker.", group="Values and time")
TRACKER_TOKEN = text("flink.watermark.tracker.token", "Token of the tracker.", group="Values and time", secret=True)
TRACKER_TIMEOUT = integer(
    "flink.watermark.tracker.timeout",
    "A subtask that has not reported for this long is left out (W6).",
    30_000,
    1,
    unit="ms",
    group="Values and time",
)
STARTUP_TIMEOUT = integer(
    "flink.watermark.startup.timeout",
    "How long the first value waits for every expected subtask (W6).",
    60_000,
    1,
    unit="ms",
    group="Values and time",
)
WATERMARK_GROUP = text(
    "flink.watermark.group",
    "Jobs with one group share a global watermark; others never do (W6).",
    group="Values and time",
)

# --- memory -------------------------------------------------------------------------------------------------------------------------------
SUBTASK_BYTES = integer(
    "flink.subtask.queue.bytes",
    "Room for everything queued in a subtask, as held in memory (P6).",
    128 * 2**20,
    2**16,
    unit="bytes",
    group="Memory",
)
SHARD_BYTES = integer(
    "flink.shard.queue.bytes",
    "Room for one shard's queue, as held in memory (P6).",
    16 * 2**20,
    2**10,
    unit="bytes",
    group="Memory",
)
SHARD_RECORDS = integer(
    "flink.shard.queue.records", "Records in one shard's queue.", 50_000, 1, unit="records", group="Memory"
)

declare_without_meaning(
    {
        "flink.stream.efo.http-client.max-concurrency": "subscriptions have a pool of their own without a limit (F1)",
        "flink.stream.efo.http-client.read-timeout": "see flink.shard.subscribetoshard.inactivity.timeout (F5)",
        "flink.watermark.sync.queue.capacity": "queues are bounded by flink.shard.queue.records and flink.shard.queue.bytes (P6)",
        "aws.credentials.provider.custom.class": "it names a Java class",
        "aws.credentials.provider.role.provider": "the role is assumed with the SDK's own chain of credentials",
        "aws.clientconfig.": "it names properties of the Java SDK",
        "aws.http-client.": "it sets the Java SDK's HTTP client",
        "aws.http.protocol.version": "the Python SDK speaks HTTP/1.1",
        "aws.trust.all.certificates": "certificates are always checked",
    }
)
