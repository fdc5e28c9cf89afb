"""The properties of the publisher QUEUE: the queue, its receivers, and how long records are hidden."""

from .declaration import PropertyGroup

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
    "What happens to a record that this process has acknowledged and receives again: it is counted, and passed on or dropped.",
    "COUNT",
    ("COUNT", "DROP"),
)
