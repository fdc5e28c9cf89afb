"""The options for rows that cannot be put, and the dead-letter sink that they name (S7).

It does not import pyarrow, which the list of properties does not need.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from recordpublisher.fetcher.sink import Sink
from recordpublisher.plugins.host.build_from_properties import build_dead_letter_sink
from recordpublisher.plugins.host.manager import load_registry
from recordpublisher.publishers.errors import ConfigurationError, ImpossibleStateError
from recordpublisher.publishers.properties.groups.job import (
    CHOICES,
    DEAD_LETTER,
    DEAD_LETTER_SINK,
    ON_BAD_RECORD,
    OnBadRecord,
)
from recordpublisher.publishers.properties.groups.sinks import JSONL_PATH
from recordpublisher.publishers.properties.properties import Properties

from ..options import SPARK

FOLDER_KEY = DEAD_LETTER.key + JSONL_PATH.key.removeprefix("flink.sink.")

ON_FAILURE = SPARK.choice(
    "flink.spark.write.onfailure",
    "A row that can never be written: FAIL the query, SKIP and count, or DEAD_LETTER, to `flink.deadletter.sink` or `deadLetters`.",
    OnBadRecord.FAIL.name,
    CHOICES,
    aliases=("onFailure",),
)
DEAD_LETTERS = SPARK.text(
    "flink.spark.write.deadletters",
    "A folder of this query, seen by every executor, for rows that can never be written: JSON lines. Short for "
    f"`onFailure=DEAD_LETTER`, `flink.deadletter.sink=jsonl` and `{FOLDER_KEY}`.",
    aliases=("deadLetters",),
)


def with_dead_letters(properties: Properties) -> Properties:
    """Return the properties with `deadLetters` replaced by the properties that it stands for.

    Raises: ConfigurationError if other properties contradict it.
    """
    folder, policy = properties.value(DEAD_LETTERS), properties.value(ON_FAILURE)
    if folder is None:
        if policy == "DEAD_LETTER" and not properties.is_set(DEAD_LETTER_SINK):
            valid = f"deadLetters=<folder> with it, or {DEAD_LETTER_SINK.key}"
            raise ConfigurationError("onFailure", policy, valid, reason="nothing says where the rows go")
        return properties
    if "://" in folder:
        valid = f"a folder that every executor sees; for other places onFailure=DEAD_LETTER and {DEAD_LETTER_SINK.key}"
        raise ConfigurationError("deadLetters", folder, valid)
    if properties.is_set(ON_FAILURE) and policy != "DEAD_LETTER":
        raise ConfigurationError("onFailure", policy, "DEAD_LETTER, or no option deadLetters")
    for key, value in properties.with_prefix(DEAD_LETTER).items():
        raise ConfigurationError(DEAD_LETTER.key + key, value, "this or the option deadLetters, not both")
    expanded = {ON_FAILURE.key: "DEAD_LETTER", DEAD_LETTER_SINK.key: "jsonl", FOLDER_KEY: folder}
    return properties.merged(expanded)


def dead_letter_sink(properties: Properties) -> Callable[[], Sink] | None:
    """Return a function that makes the dead-letter sink of a task; None without one.

    Raises: ConfigurationError if the sink lacks a property.
    """
    if properties.value(ON_FAILURE) != "DEAD_LETTER":
        return None
    _create_sink(properties)
    return partial(_create_sink, properties)


def check_folder(properties: Properties) -> None:
    """Check on the driver that the folder of dead letters can be written. Raises: ConfigurationError if it cannot."""
    folder = properties.value(DEAD_LETTERS)
    if folder is None:
        return
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        problem = "" if os.access(folder, os.W_OK) else "no right to write"
    except OSError as error:
        problem = str(error)
    if problem:
        raise ConfigurationError("deadLetters", folder, "a folder that every executor can write", reason=problem)


def _create_sink(properties: Properties) -> Sink:
    made = build_dead_letter_sink(load_registry(), properties.merged({ON_BAD_RECORD.key: "DEAD_LETTER"}))
    if made is None:
        raise ImpossibleStateError("the policy DEAD_LETTER has no sink")
    return made
