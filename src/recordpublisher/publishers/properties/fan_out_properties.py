"""The properties of the publisher EFO: its consumers, and its subscriptions."""

from .declaration import PropertyGroup

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
    "When a LAZY or EAGER consumer is deregistered: LAST_OUT by the last worker of a process (in a group: of the last process), "
    "unless a run failed; NEVER only by command. A query of Spark never does.",
    "LAST_OUT",
    ("LAST_OUT", "NEVER"),
)
RECOVERABLE_ERRORS = FAN_OUT.prefix(
    "flink.shard.consumer.error.recoverable[", "Names of further errors that are retried, indexed from 0 (FLINK-33260)."
)
