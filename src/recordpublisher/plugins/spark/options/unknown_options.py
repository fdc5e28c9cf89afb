"""Refuses or warns of options: unknown options (C1), the removed mode CONTINUOUS, and SQL tables. Decides which process warns."""

import difflib
import logging
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.declaration import Property, declared_properties, find_property
from recordpublisher.publishers.properties.properties import (
    Properties,
    UnknownPropertyWarning,
    is_unknown,
    nearest_hint,
    reason_of_flink,
)

from ..process.python_worker import log_to_stderr
from .peers.option_table import PEERS

_COMMITTING = "pyspark.sql.worker.python_streaming_sink_runner"
LOG = logging.getLogger("recordpublisher.spark")


@dataclass(frozen=True, slots=True)
class OptionWarnings:
    """The texts of warnings, and whether `load()` has logged them.

    If the query gives a schema, `load()` does not log them, because Spark then does not ask for one.
    """

    texts: tuple[str, ...] = ()
    is_told: bool = False

    def tell(self) -> None:
        """Log the warnings, unless that was done."""
        if not self.is_told and self.texts:
            log_to_stderr()
            for text in self.texts:
                LOG.warning(text)


def silence_where_writes_are_committed() -> None:
    """Ignore warnings in the process that commits writes.

    Spark makes the writer of a query in two processes, and the one that plans the writes has already warned.
    """
    if _COMMITTING in sys.modules:
        warnings.simplefilter("ignore", UserWarning)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the warnings that are given during the block, each text once."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        yield texts
    texts += dict.fromkeys(str(each.message) for each in caught)


SPARK_OPTIONS = ("checkpointlocation",)
"""Spark's own options, which it passes to the source with the others."""
_PREFIX = "kinesis"
_MODE = ("mode", "flink.spark.mode")
_CONTINUOUS = ("walrollinterval", "walrollbytes", "walrollrecords", "maxwalbytes")
_INSTEAD = (
    "BATCH, the only mode, with a short trigger; or, where records are needed within a second, the library's own fetcher with fan-out "
    "(rp.consume, rp.DataFetcher)"
)


def refuse_continuous(options: Mapping[str, str]) -> None:
    """Refuse the options of mode CONTINUOUS, which no longer exists. `mode=BATCH` changes nothing.

    Raises: ConfigurationError if one of them is given.
    """
    for key, value in options.items():
        lower = key.lower()
        is_other_mode = lower in _MODE and value.strip().upper() != "BATCH"
        if is_other_mode or lower in _CONTINUOUS or lower.startswith("flink.spark.wal."):
            raise ConfigurationError(key, value, _INSTEAD, reason="the mode CONTINUOUS no longer exists")


def check_unknown_options(properties: Properties, ours: Sequence[Property[Any]]) -> None:
    """Refuse every key that is neither a declared property nor one of these options. The error names the nearest known one.

    A warning is enough for an option of the other direction, and for a key of Flink's connector that has no effect here. Options of other
    connectors were translated before. Keys of another name space (`my.own.key`) are accepted, because a plugin may read them.

    Raises: ConfigurationError if a key is unknown.
    """
    own = {alias.lower(): alias for option in ours for alias in option.aliases}
    declared = {key.key.lower() for key in declared_properties()}
    known = {option.key.lower(): option.key for options in PEERS.values() for option in options} | own
    for key in properties:
        lower = key.lower()
        if lower in own or lower in (*SPARK_OPTIONS, *_MODE) or lower in declared:
            continue
        if find_property(key) is not None and is_option(key):
            warnings.warn(f"unknown option '{key}' is ignored", UnknownPropertyWarning, stacklevel=3)
        elif is_option(key):
            nearest = known.get(lower.removeprefix(f"{_PREFIX}.")) or next(
                (known[each] for each in difflib.get_close_matches(lower, known, n=1, cutoff=0.8)), None
            )
            hint = f"; did you mean '{nearest}'?" if nearest else nearest_hint(key)
            raise ConfigurationError(key, reason=f"there is no such option{hint}")
        elif is_unknown(key):
            reason = reason_of_flink(key)
            if reason is None:
                raise ConfigurationError(key, reason=f"there is no such property{nearest_hint(key)}")
            warnings.warn(f"property '{key}' has no effect here: {reason}", UnknownPropertyWarning, stacklevel=3)


def is_option(key: str) -> bool:
    """Return whether a key is checked here: a key without a dot, or with the prefix of other connectors."""
    prefix, dot, _ = key.lower().partition(".")
    return not dot or bool(difflib.get_close_matches(prefix, (_PREFIX,), n=1, cutoff=0.8))


_VIEW = "CREATE TEMPORARY VIEW orders USING kinesis OPTIONS (stream 'orders', ...)"
_REASON = "Spark passes no options of a table to the source that reads it"


def refuse_new_table(options: Mapping[str, str]) -> None:
    """Refuse the options that Spark 4.3 passes for a CREATE TABLE without columns. With columns Spark does not ask the source.

    Raises: ConfigurationError if these options are given.
    """
    if "provider" in options and "owner" in options:
        raise ConfigurationError("CREATE TABLE USING", options["provider"], _VIEW, reason=_REASON)


def refuse_table(options: Mapping[str, str]) -> None:
    """Refuse a read without any option, such as a SELECT from a table. Raises: ConfigurationError if there is no option."""
    if not options:
        valid = (
            "a stream's name or ARN, as .option('stream', 'orders'); in SQL, where a table that CREATE TABLE made cannot be read (Spark "
            f"passes no options of it), {_VIEW}"
        )
        raise ConfigurationError("stream", None, valid)
