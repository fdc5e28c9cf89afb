"""The page of errors: a heading for each class and for each code of the service, so that a message leads to its remedy."""

from __future__ import annotations

import inspect

import recordpublisher as rp
from recordpublisher.publishers.kinesis.error_mapping import HINTS

CAUSES = {
    "RecordPublisherError": ("", "Look at the class of the error itself: this one is only for `except`."),
    "ConfigurationError": (
        "A property is missing or wrong.",
        "The message names the key, the value and what is valid. `recordpublisher properties WORD` lists what there is.",
    ),
    "PluginError": (
        "A package with an entry point `recordpublisher` cannot be imported, or two packages register one name.",
        "`recordpublisher plugins` lists them. Repair or uninstall the package that the message names.",
    ),
    "KinesisError": ("", "Look at the class of the error itself: this one is only for `except`."),
    "TransientError": (
        "The network or the service failed for a moment. You see it only as the cause of a `RetriesExhaustedError` or in logs.",
        "Nothing, unless it lasts: then check the network, a proxy, and the state of the service.",
    ),
    "ThrottledError": (
        "The stream is read or written faster than its shards allow, perhaps by several jobs together.",
        "Poll less often (`flink.shard.getrecords.intervalmillis`), read by enhanced fan-out, or add shards.",
    ),
    "ResourceInUseError": (
        "The stream or the consumer is being changed, or another program holds the subscription of this shard.",
        "Nothing, unless it lasts: then give each job its own `flink.stream.efo.consumername`.",
    ),
    "ExpiredIteratorError": ("A read position was not used for five minutes.", "Nothing: a new one is taken."),
    "ResourceNotFoundError": (
        "The stream, shard or consumer does not exist here.",
        "Check the name, `aws.region` and the account. `recordpublisher list` shows the streams.",
    ),
    "FatalKinesisError": (
        "A retry cannot help.",
        "The message ends with what to do; the codes are [below](#codes-of-the-service).",
    ),
    "StreamNotFoundError": (
        "There is no stream of this name in this account and region.",
        "Check the name, `aws.region` and the account. `recordpublisher list` shows the streams.",
    ),
    "ConsumerError": (
        "The stream has no room for another consumer, somebody deregistered ours, or another job uses its name.",
        "Give each job its own `flink.stream.efo.consumername`. `recordpublisher consumers list` shows who is there.",
    ),
    "RetriesExhaustedError": (
        "A call failed again and again without any progress.",
        "The cause is in the message. When it is mended, start the job again: it goes on at its last checkpoint.",
    ),
    "OutageError": (
        "On Spark: a service was away for longer than `maxOutage`.",
        "When it is back, start the query again with the same checkpoint. Raise `maxOutage` if such outages are normal.",
    ),
    "DeserializationError": (
        "A record is not what `flink.deserializer` expects.",
        "`flink.deserializer.error` = `SKIP` counts and skips such records, `DEAD_LETTER` writes them to another sink.",
    ),
    "StateError": (
        "The stored state cannot be read: another version, another job, or not ours.",
        "Use the version of the library that wrote it, or start without it, at `flink.stream.initpos`.",
    ),
    "StoreUnavailableError": (
        "The place of the state (S3, DynamoDB, a database, a folder) does not answer.",
        "Check that it is reachable and that its rights are there; then start the job again.",
    ),
    "DataLossError": (
        "The job was away, or slow, for longer than the stream keeps its records.",
        "`flink.state.dataloss` = `CONTINUE` goes on with the oldest record there is. Raise the stream's retention, and watch "
        "the [lag](../operate/watch-a-job.md).",
    ),
    "FencedError": (
        "A newer start of the same job has taken over.",
        "Nothing, if you replaced the process. Otherwise two jobs share one `flink.job.name` or one place of state.",
    ),
    "SinkError": (
        "The database, the folder or the stream that is written to refused a record or lost a write.",
        "The message names it. When it is mended, start the job again: it goes on at its last checkpoint.",
    ),
    "ImpossibleStateError": (
        "A mistake in this library, in a plugin, or in a server that is not Kinesis.",
        "Report it with the whole traceback. The job can be started again: its state is that of the last checkpoint.",
    ),
}
"""What is behind an error, and what a person does."""

SYMPTOMS = """## No error, but ...

### ... nothing is read

A new job begins at LATEST: it reads only what is put after its start. Set `flink.stream.initpos = TRIM_HORIZON`.
`recordpublisher describe STREAM` shows the shards, and `recordpublisher tail STREAM --from TRIM_HORIZON --limit 1`
whether there is a record.

### ... one shard is not read

If it is a child of a split or merge, it waits until its parents are written to their end. If its state is *held*,
alignment waits for slower shards: see [alignment](../explanation/watermarks.md#alignment).

### ... the watermark does not move

A shard without records holds it back, until `flink.shard.idle.interval` is set. `recordpublisher lag` shows which
one: see [idleness](../explanation/watermarks.md#idleness).

### ... a record comes twice

After a crash the records since the last checkpoint come again. A sink that stores the positions with its rows (`sql`,
`jsonl`, `parquet`) writes each once: see [state](../explanation/state.md).

### ... the lag grows

The sink may be too slow: back-pressure then slows the reading. Look at the [metrics](metrics.md); give the job more
subtasks (`--parallelism`), or call a function for many records [at a time](../how-to/handle-each-record.md).

### ... Spark says DATA_SOURCE_NOT_FOUND

The Python of the driver or of the workers does not have the package: see [run a job on
Spark](../spark/run-a-job.md)."""


def page() -> str:
    """The whole page."""
    parts = [
        "# Troubleshooting",
        "Written by `make docs`: change `docs/troubleshooting.py`, not this page.",
        "Find the name of the error, or the code that its message shows; the text itself is among the "
        "[error messages](error-messages.md). "
        "`recordpublisher doctor job.properties` finds most of them before a job starts.",
        SYMPTOMS,
        "## Errors",
    ]
    for name, (cause, remedy) in CAUSES.items():
        words = inspect.getdoc(getattr(rp, name)) or ""
        parts += [
            f"### {name}",
            words.split("\n\n")[0],
            *([f"**Cause.** {cause}"] if cause else []),
            f"**What to do.** {remedy}",
        ]
    parts += ["## Codes of the service", "The code is in the message of a `FatalKinesisError`, and so is what to do."]
    for code, remedy in HINTS.items():
        parts += [f"### {code}", f"{remedy[0].upper()}{remedy[1:]}."]
    return "\n\n".join(parts) + "\n"
