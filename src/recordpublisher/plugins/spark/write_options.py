"""Parses and checks the options of a job that writes, including what happens to rows that cannot be written."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from recordpublisher.fetcher.sink import Sink
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.publishers.errors import ConfigurationError, ImpossibleStateError
from recordpublisher.publishers.properties.config_fields import of_property, properties_of, values_of
from recordpublisher.publishers.properties.declaration import Property
from recordpublisher.publishers.properties.job_properties import (
    BAD_RECORD_CHOICES,
    DEAD_LETTER,
    DEAD_LETTER_SINK,
    ON_BAD_RECORD,
    OnBadRecord,
)
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.retry_properties import MAX_OUTAGE
from recordpublisher.publishers.properties.sink_properties import (
    AGGREGATION_ENABLED,
    JSONL_PATH,
    SINK_FAIL_ON_ERROR,
    SINK_STREAM,
)

from ..host.build_from_properties import build_dead_letter_sink
from ..sinks.kinesis.sink_settings import KinesisSinkSettings
from ..stores.back_ends import is_file_uri
from ..stores.durable_files import path_of
from .options import SPARK
from .options.other_connectors import check_unknown_options, import_declaring_plugins, options_with_our_keys
from .options.spark_options import STREAM, with_loaded_stream
from .options.start_by_shard import START_OPTION

QUEUE_BYTES_PER_STREAM = 16 * 2**20
"""Default queue size of each stream if a column names the streams (bytes). It is small, because the number of streams is unknown."""

INITIAL_FRACTION = 0.125
"""Part of a shard's rate limit with which each task begins if `writeTasks` is not set. Calls then have about 30 records.

Measured with 32 tasks on one shard, until 40,000 records were put: 150,000 records were throttled if the tasks began at the full rate, and
18,000 if they began with calls of 32 records. A single task loses half a second by it.
"""

WRITE_TASKS = SPARK.optional_integer(
    "flink.spark.write.tasks",
    "Tasks that write at the same time, best the number of slots. Each task uses `RateLimit` divided by this number. Not set: throttling "
    "makes the tasks share the shards.",
    1,
    unit="tasks",
    aliases=("writeTasks",),
)
ID_FIELD = SPARK.text(
    "flink.spark.write.id.field",
    "A field that is added to `data`, a JSON object: an id by which consumers can drop duplicates.",
    aliases=("idField",),
)
FOLDER_KEY = DEAD_LETTER.key + JSONL_PATH.key.removeprefix("flink.sink.")

ON_FAILURE = SPARK.choice(
    "flink.spark.write.onfailure",
    "A row that can never be written: FAIL the query, SKIP and count, or DEAD_LETTER, to `flink.deadletter.sink` or `deadLetters`.",
    OnBadRecord.FAIL.name,
    BAD_RECORD_CHOICES,
    aliases=("onFailure",),
)
DEAD_LETTERS = SPARK.text(
    "flink.spark.write.deadletters",
    "A folder of this query, seen by every executor, for rows that can never be written: JSON lines. Short for "
    f"`onFailure=DEAD_LETTER`, `flink.deadletter.sink=jsonl` and `{FOLDER_KEY}`.",
    aliases=("deadLetters",),
)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a job that writes, typed and checked. `stream` is None if a column names the stream of each row."""

    stream: str | None
    settings: KinesisSinkSettings
    properties: Properties
    id_field: str | None = of_property(ID_FIELD)
    on_failure: str = of_property(ON_FAILURE)
    max_outage_ms: int = of_property(MAX_OUTAGE)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Parse and check the options that Spark passes. Their keys are in lower case.

        Raises: ConfigurationError if an option is invalid. The error names the value and the valid values.
        """
        if START_OPTION.lower() in map(str.lower, options):
            warnings.warn(f"'{START_OPTION}' has no effect on a write", UserWarning, stacklevel=2)
        properties = with_loaded_stream(
            options_with_our_keys(options, has_default=(AGGREGATION_ENABLED,)), (STREAM, SINK_STREAM)
        )
        all_imported = import_declaring_plugins(properties)
        # Unknown keys are not reported here, because `check_unknown_options` has better hints.
        properties.check(lambda key: False)
        ours: Sequence[Property[Any]] = (STREAM, WRITE_TASKS, DEAD_LETTERS, *properties_of(cls))
        check_unknown_options(properties, ours, all_imported=all_imported)
        properties = with_dead_letters(properties)
        _refuse_lost_rows(properties)
        dead_letter_sink(properties)
        return cls(
            stream=_stream(properties),
            settings=_per_task(KinesisSinkSettings.of(properties), properties.value(WRITE_TASKS)),
            properties=properties,
            **values_of(cls, properties),
        )

    def settings_per_stream(self) -> KinesisSinkSettings:
        """Return the settings for the writer of each stream, for a job in which a column names the streams."""
        given = self.settings
        return given if given.queue_bytes is not None else replace(given, queue_bytes=QUEUE_BYTES_PER_STREAM)

    @property
    def connection_key(self) -> tuple[object, ...]:
        """All properties except the target and the row ids. Tasks with an equal key in one process share their open writers."""
        others = {key for option in (STREAM, SINK_STREAM, ID_FIELD) for key in (option.key, *option.aliases)}
        lowered = {key.lower() for key in others}
        kept = sorted((key.lower(), value) for key, value in self.properties.items() if key.lower() not in lowered)
        return (self.stream is None, *kept)


def _stream(properties: Properties) -> str | None:
    name = properties.value(STREAM) or properties.value(SINK_STREAM)
    if name is not None and (not name.strip() or "," in name):
        reason = "to write to several streams, give the rows a column 'stream', and leave this option out"
        raise ConfigurationError("stream", name, "the name or ARN of one stream", reason=reason)
    return None if name is None else name.strip()


def _per_task(settings: KinesisSinkSettings, tasks: int | None) -> KinesisSinkSettings:
    if tasks is None:
        return replace(settings, initial_fraction=INITIAL_FRACTION)
    return replace(
        settings,
        records_per_second=settings.records_per_second / tasks,
        bytes_per_second=settings.bytes_per_second / tasks,
    )


def with_dead_letters(properties: Properties) -> Properties:
    """Return the properties with `deadLetters` replaced by the properties for which it is short.

    Raises: ConfigurationError if other properties contradict `deadLetters`, or if `onFailure` is DEAD_LETTER and no place is given.
    """
    folder, policy = properties.value(DEAD_LETTERS), properties.value(ON_FAILURE)
    if folder is None:
        if policy == "DEAD_LETTER" and not properties.is_set(DEAD_LETTER_SINK):
            valid = f"deadLetters=<folder> with it, or {DEAD_LETTER_SINK.key}"
            raise ConfigurationError("onFailure", policy, valid, reason="nothing says where the rows go")
        return properties
    if "://" in folder and not is_file_uri(folder):
        valid = f"a folder that every executor sees; for other places onFailure=DEAD_LETTER and {DEAD_LETTER_SINK.key}"
        raise ConfigurationError("deadLetters", folder, valid)
    if properties.is_set(ON_FAILURE) and policy != "DEAD_LETTER":
        raise ConfigurationError.conflict("onFailure", "deadLetters", value=policy)
    for key in properties.with_prefix(DEAD_LETTER):
        raise ConfigurationError.conflict(DEAD_LETTER.key + key, "deadLetters", reason="both say where dead letters go")
    expanded = {ON_FAILURE.key: "DEAD_LETTER", DEAD_LETTER_SINK.key: "jsonl", FOLDER_KEY: folder}
    return properties.merged(expanded)


def _refuse_lost_rows(properties: Properties) -> None:
    """Check that the sink does not skip records that cannot be put while `onFailure` is FAIL, because their rows would be lost.

    Raises: ConfigurationError if it would.
    """
    if properties.value(ON_FAILURE) == "FAIL" and not properties.value(SINK_FAIL_ON_ERROR):
        reason = (
            "a row that cannot be put fails the query; to continue without such rows, set onFailure=SKIP or DEAD_LETTER"
        )
        raise ConfigurationError.conflict(SINK_FAIL_ON_ERROR.key, "onFailure=FAIL", value="false", reason=reason)


def dead_letter_sink(properties: Properties) -> Callable[[], Sink] | None:
    """Return a function that makes the dead-letter sink of a task, or None if the job has no dead-letter sink.

    Raises: ConfigurationError if the sink lacks a property.
    """
    if properties.value(ON_FAILURE) != "DEAD_LETTER":
        return None
    _create_sink(properties)
    return partial(_create_sink, properties)


def check_folder(properties: Properties) -> None:
    """Check on the driver that the folder of `deadLetters` can be written. It is created if it is missing.

    Raises: ConfigurationError if it cannot be written.
    """
    folder = properties.value(DEAD_LETTERS)
    if folder is None:
        return
    try:
        path = Path(path_of(folder, "deadLetters"))
        path.mkdir(parents=True, exist_ok=True)
        problem = "" if os.access(path, os.W_OK) else "the driver has no permission to write into it"
    except OSError as error:
        problem = str(error)
    if problem:
        raise ConfigurationError("deadLetters", folder, "a folder that every executor can write", reason=problem)


def _create_sink(properties: Properties) -> Sink:
    made = build_dead_letter_sink(load_registry(), properties.merged({ON_BAD_RECORD.key: "DEAD_LETTER"}))
    if made is None:
        raise ImpossibleStateError("the policy DEAD_LETTER has no sink")
    return made
