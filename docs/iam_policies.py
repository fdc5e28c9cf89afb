"""The page of IAM policies, from one table: which action each feature calls, on what, and what for. `tests/iam` runs jobs under them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.plugins.stores.dynamodb_store import DynamoDbStore
from recordpublisher.plugins.stores.s3_store import S3Store

STREAM = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
CONSUMER = f"{STREAM}/consumer/billing:*"
TARGET = "arn:aws:kinesis:us-east-1:123456789012:stream/copies"
QUEUE = "arn:aws:kinesis:us-east-1:123456789012:queue/*"
TABLE = "arn:aws:dynamodb:us-east-1:123456789012:table/states"
TABLE_STREAMS = "arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/*"
BUCKET = "arn:aws:s3:::bucket"
OBJECTS = f"{BUCKET}/jobs/*"
LAKE = f"{BUCKET}/lake/*"
ROLE = "arn:aws:iam::123456789012:role/reader"
KEY = "arn:aws:kms:us-east-1:123456789012:key/KEY-ID"


@dataclass(frozen=True)
class Action:
    """An action on resources. `rare`: why a job may run without calling it. `without`: what happens if it is denied, when no error."""

    name: str
    resources: tuple[str, ...]
    purpose: str
    rare: str = ""
    without: str = ""


@dataclass(frozen=True)
class Feature:
    """What a job uses, and the actions for it."""

    title: str
    words: str
    actions: tuple[Action, ...]


LIST_SHARDS = Action("kinesis:ListShards", (STREAM,), "the shards, and the time of the service")
SETTINGS = Action(
    "kinesis:DescribeStreamSummary",
    (STREAM,),
    "the retention, for the time until unread records are lost",
    without="a warning in the log; that time is not known",
)
LIST_STREAMS = Action(
    "kinesis:ListStreams",
    ("*",),
    "the existing streams, for the error about one that does not exist",
    rare="only when the stream does not exist",
    without="an error without these names",
)
GET_ITERATOR = Action("kinesis:GetShardIterator", (STREAM,), "where to read")
GET_RECORDS = Action("kinesis:GetRecords", (STREAM,), "the records")
SUBSCRIBE = Action("kinesis:SubscribeToShard", (CONSUMER,), "the records")
CHECK = "whether a shard has records that were not read"
CHECK_RARE = "only after a pause longer than the retention, or when a subscription stays silent; Spark: in each run"
CHECKS = (
    Action("kinesis:GetShardIterator", (STREAM,), CHECK, CHECK_RARE),
    Action("kinesis:GetRecords", (STREAM,), CHECK, CHECK_RARE),
)
BOTH = (STREAM, CONSUMER)
REGISTRATION = (
    Action(
        "kinesis:DescribeStreamSummary", (STREAM,), "the ARN and the retention; not needed for the ARN if you give it"
    ),
    Action("kinesis:DescribeStreamConsumer", BOTH, "whether the consumer exists and is ACTIVE"),
    Action("kinesis:RegisterStreamConsumer", BOTH, "registers the consumer"),
    Action(
        "kinesis:DeregisterStreamConsumer",
        BOTH,
        "deregisters the consumer when the job ends",
        without="a warning in the log; the consumer stays registered, and is billed",
    ),
    Action("kinesis:TagResource", BOTH, "tags of the consumer", rare="only with `flink.stream.efo.tags`"),
)
DESCRIBE_GIVEN = Action(
    "kinesis:DescribeStreamConsumer",
    BOTH,
    "whether the consumer still exists",
    rare="only when a subscription does not find it",
)
WRITING = (
    Action("kinesis:ListShards", (TARGET,), "the shards, by which records are put together"),
    Action(
        "kinesis:DescribeStreamSummary",
        (TARGET,),
        "the largest record, and whether records are distributed by key",
        without="1 MiB and yes are assumed",
    ),
    Action("kinesis:PutRecords", (TARGET,), "the records"),
)
CHANGES = (
    Action("dynamodb:ListStreams", (TABLE_STREAMS,), "the newest stream of the table"),
    Action("dynamodb:DescribeStream", (TABLE_STREAMS,), "its shards"),
    Action("dynamodb:GetShardIterator", (TABLE_STREAMS,), "where to read"),
    Action("dynamodb:GetRecords", (TABLE_STREAMS,), "the changes"),
)
OF_COMMAND = "only for `recordpublisher dead-letters --queue`"
QUEUES = (
    Action(
        "kinesis:DescribeStreamSummary",
        (STREAM,),
        "finds the stream's ARN",
        rare="only where the stream is given by name",
    ),
    Action("kinesis:ListQueues", ("*",), "finds the queue by its name", rare="only where the queue is given by name"),
    Action(
        "kinesis:CreateQueue", (QUEUE, STREAM), "creates the queue", rare="only when there is no queue of that name"
    ),
    Action(
        "kinesis:DescribeQueue", (QUEUE,), "waits for the new queue", rare="only for a new queue, or one given by ARN"
    ),
    Action("kinesis:ReceiveQueueRecords", (QUEUE,), "receives"),
    Action("kinesis:AcknowledgeQueueRecords", (QUEUE,), "acknowledges what is done"),
    Action("kinesis:UpdateQueueRecordsVisibility", (QUEUE,), "keeps records that are worked on, and gives up others"),
    Action("kinesis:ReceiveDeadLetterQueueRecords", (QUEUE,), "shows dead letters", rare=OF_COMMAND),
    Action("kinesis:UpdateDeadLetterQueueRecordsVisibility", (QUEUE,), "puts back what was shown", rare=OF_COMMAND),
    Action("kinesis:AcknowledgeDeadLetterQueueRecords", (QUEUE,), "discards dead letters", rare=OF_COMMAND),
    Action("kinesis:RestoreDeadLetterQueueRecords", (QUEUE,), "replays dead letters", rare=OF_COMMAND),
)
PURPOSES = {
    "writes": "writes, if nobody else has written",
    "deletes": "deletes what is no longer needed",
    "creates": "creates the table, and waits for it",
}
RARE = {"creates": "only when there is no table: create it yourself, and leave this out"}


def of_store(store: type[ConditionalStore], does: str, resource: str, without: str = "") -> tuple[Action, ...]:
    """The actions of a store that do this."""
    names = [name for name, what in store.actions.items() if what == does]
    return tuple(Action(name, (resource,), PURPOSES.get(does, does), RARE.get(does, ""), without) for name in names)


ITEMS = tuple(
    action for does in ("reads", "lists", "writes", "creates") for action in of_store(DynamoDbStore, does, TABLE)
)
S3_OBJECTS = (
    *of_store(S3Store, "reads", OBJECTS),
    *of_store(S3Store, "writes", OBJECTS),
    *of_store(S3Store, "lists", BUCKET, "S3 answers that a missing object is denied"),
)
FILES = (
    Action("s3:PutObject", (LAKE,), "writes hidden files, and copies them to their names at each checkpoint"),
    Action("s3:GetObject", (LAKE,), "the job's entry, and what is copied"),
    Action("s3:DeleteObject", (LAKE,), "hidden files that are copied, or left over"),
    Action("s3:ListBucket", (BUCKET,), "what is left over", without="it stays, and a warning says so"),
    Action("s3:AbortMultipartUpload", (LAKE,), "ends an upload", rare="only for large files, when the job fails"),
    Action("s3:ListBucketMultipartUploads", (BUCKET,), "unfinished uploads", rare="only `recordpublisher leftovers`"),
)
READ_FILES = (
    Action("s3:ListBucket", (BUCKET,), "the files of the archive, which say in their names what they have"),
    Action(
        "s3:GetObject", (LAKE,), "the files, the documents of the shards, and the positions of the job that archives"
    ),
)
LEFT = "only after a process has left the group or was lost"
(DELETE_ITEM,) = of_store(DynamoDbStore, "deletes", TABLE, "items are left over")
(DELETE_OBJECT,) = of_store(S3Store, "deletes", OBJECTS, "a store keeps what is left over; files in S3 need it")

FEATURES = {
    "polling": Feature(
        "Polling",
        "`flink.stream.recordpublisher = POLLING`, the default.",
        (LIST_SHARDS, GET_ITERATOR, GET_RECORDS, SETTINGS, LIST_STREAMS),
    ),
    "fan-out": Feature(
        "Enhanced fan-out: the job registers its consumer",
        "`EFO` with the registration `LAZY` or `EAGER` and the consumer name `billing`. Spark never deregisters: there, "
        "`deregister_consumers` needs that action.",
        (LIST_SHARDS, SUBSCRIBE, *REGISTRATION, *CHECKS, LIST_STREAMS),
    ),
    "fan-out-given": Feature(
        "Enhanced fan-out: the consumer is registered already",
        "`EFO` with the registration `NONE` and the consumer's ARN.",
        (LIST_SHARDS, SUBSCRIBE, SETTINGS, DESCRIBE_GIVEN, *CHECKS, LIST_STREAMS),
    ),
    "queue": Feature("Queues", "`QUEUE`, with a queue of the stream `orders` that the job may create.", QUEUES),
    "dynamodb-streams": Feature(
        "DynamoDB Streams", "`DYNAMODB_STREAMS`, for the changes of the table `orders`.", CHANGES
    ),
    "kinesis-sink": Feature(
        "Kinesis sink",
        "`flink.sink = kinesis`, which writes to `copies`. Spark's writer too.",
        (*WRITING, LIST_STREAMS),
    ),
    "state-dynamodb": Feature(
        "State in DynamoDB", "`flink.state.uri = dynamodb://states/orders`.", (*ITEMS, replace(DELETE_ITEM, rare=LEFT))
    ),
    "state-s3": Feature(
        "State in S3", "`flink.state.uri = s3://bucket/jobs/orders`.", (*S3_OBJECTS, replace(DELETE_OBJECT, rare=LEFT))
    ),
    "files-s3": Feature(
        "Files in S3",
        "`flink.sink = parquet` or `jsonl` with the path `s3://bucket/lake/orders`. Delta and Iceberg write such files too, and what "
        "their libraries keep of the table.",
        FILES,
    ),
    "archive-s3": Feature(
        "An archive in S3, read",
        "`flink.stream.recordpublisher = ARCHIVE` with `flink.archive.uri = s3://bucket/lake/orders`. Nothing is written there. The "
        "job also needs what its live publisher needs (`flink.archive.live`), unless that is `NONE`. The job that writes the archive needs "
        "the policy of *Files in S3*.",
        READ_FILES,
    ),
    "elastic-dynamodb": Feature(
        "Shards shared by leases in DynamoDB",
        "`flink.job.workers = GROUP` with `flink.state.uri = dynamodb://states/orders`.",
        (*ITEMS, replace(DELETE_ITEM, rare=LEFT)),
    ),
    "elastic-s3": Feature(
        "Shards shared by leases in S3",
        "`flink.job.workers = GROUP` with `flink.state.uri = s3://bucket/jobs/orders`.",
        (*S3_OBJECTS, replace(DELETE_OBJECT, rare=LEFT)),
    ),
    "spark-s3": Feature(
        "Spark: claims in S3",
        "`metadataLocation = s3://bucket/jobs/claims`, or a `metadataRoot` there, for driver and executors. Reading needs what polling or "
        "fan-out needs, also on both.",
        (*S3_OBJECTS, DELETE_OBJECT),
    ),
    "spark-dynamodb": Feature(
        "Spark: claims in DynamoDB",
        "`metadataLocation = dynamodb://states/claims`, or a `metadataRoot` there, for driver and executors.",
        (*ITEMS, DELETE_ITEM),
    ),
    "glue": Feature(
        "Glue Schema Registry",
        "`flink.deserializer = glue`. The id of a schema version says nothing about its registry, so every one must be allowed.",
        (Action("glue:GetSchemaVersion", ("*",), "the schema that wrote a record"),),
    ),
    "role": Feature(
        "A role",
        "`aws.credentials.provider = ASSUME_ROLE`: for the identity that assumes the role, which must trust it. The policies above are for "
        "the role. `WEB_IDENTITY_TOKEN` needs only the role's trust.",
        (Action("sts:AssumeRole", (ROLE,), "the credentials of the role"),),
    ),
    "doctor": Feature(
        "`recordpublisher doctor`",
        "Besides what the job needs. Each action that reads is called, and writing is asked for by `DryRun`.",
        (
            Action(
                "kinesis:ListStreamConsumers",
                (STREAM,),
                "the number of consumers, for a job that registers one",
                without="the quota is not checked",
            ),
        ),
    ),
}
NOT_CALLED = {
    "Encrypted streams": (
        "The service calls KMS on behalf of the job: `Decrypt` for reading and writing, `GenerateDataKey` for writing. A stream with the "
        "key that AWS manages (`aws/kinesis`) needs nothing here.",
        (
            Action("kms:Decrypt", (KEY,), "reading, and writing too"),
            Action("kms:GenerateDataKey", (KEY,), "writing, by the sink"),
        ),
    ),
}
WORDS = """The least rights for each feature. A job needs the rights of every feature that it uses. A test runs each feature under exactly
its policy.

- Replace region, account and names.
- If the stream belongs to another account, give its ARN, and allow the same actions in the stream's resource policy.
- Metrics, databases and files on disk need no rights.
- If an action is denied, the job ends with an error that names it. The [list at the end](#what-may-be-missing) has the exceptions."""
NOTE = "<!-- made by docs/iam_policies.py (make docs): change that file, not this page -->"


def policy(*features: str) -> dict[str, Any]:
    """The policy document of features by their keys."""
    return document(action for name in features for action in FEATURES[name].actions)


def document(actions: Iterable[Action]) -> dict[str, Any]:
    """One statement for each set of resources."""
    statements: dict[tuple[str, ...], dict[str, None]] = {}
    for action in actions:
        statements.setdefault(action.resources, {})[action.name] = None
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": [*names], "Resource": [*resources]} for resources, names in statements.items()
        ],
    }


def page() -> str:
    """The page as Markdown."""
    sections = [(each.title, each.words, each.actions) for each in FEATURES.values()]
    sections += [(title, *rest) for title, rest in NOT_CALLED.items()]
    actions = _by_name(action for *_, actions in sections for action in actions)
    rows = "\n".join(_rows(action for action in actions if action.rare or action.without))
    parts = ["# IAM policies", WORDS]
    for place, (title, words, actions) in enumerate(sections):
        same = next((other for other in sections[:place] if document(other[2]) == document(actions)), None)
        policy = f"The policy is that of *{same[0]}*." if same else f"```json\n{_compact(document(actions))}\n```"
        parts += [f"## {title}", words, policy]
    return "\n\n".join([*parts, f"## What may be missing\n\n{rows}", NOTE]) + "\n"


def _by_name(actions: Iterable[Action]) -> Iterator[Action]:
    """Each action once for each purpose, in the order of their names' first use; rare only if it is so in every feature."""
    purposes: dict[tuple[str, str], list[Action]] = {}
    for action in actions:
        purposes.setdefault((action.name, action.purpose), []).append(action)
    names = list(dict.fromkeys(name for name, _ in purposes))
    for (_, _), uses in sorted(purposes.items(), key=lambda item: names.index(item[0][0])):
        yield replace(uses[0], rare="" if any(not use.rare for use in uses) else uses[0].rare)


def _rows(actions: Iterable[Action]) -> Iterator[str]:
    """A line for each condition, with its actions and what they are for."""
    lines: dict[tuple[str, str], dict[str, list[str]]] = {}
    for action in actions:
        purposes = lines.setdefault((action.rare, action.without), {})
        purposes.setdefault(action.purpose, []).append(f"`{action.name}`")
    for (rare, without), purposes in lines.items():
        told = ", ".join(f"{', '.join(names)} ({purpose})" for purpose, names in purposes.items())
        yield f"- {told}: {'; '.join(filter(None, [rare, f'if denied: {without}' if without else '']))}"


def _compact(policy: dict[str, Any]) -> str:
    """A statement in three lines."""
    statements = [
        ",\n     ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in one.items())
        for one in policy["Statement"]
    ]
    between = "},\n    {"
    return f'{{"Version": "{policy["Version"]}",\n "Statement": [\n    {{{between.join(statements)}}}]}}'
