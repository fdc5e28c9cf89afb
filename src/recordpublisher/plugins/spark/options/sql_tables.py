"""SQL tables over the source are refused: Spark keeps their options, but does not pass them to a Python source that reads."""

from __future__ import annotations

from collections.abc import Mapping

from recordpublisher.publishers.errors import ConfigurationError

_VIEW = "CREATE TEMPORARY VIEW orders USING kinesis OPTIONS (stream 'orders', ...)"
_REASON = "Spark passes no options of a table to the source that reads it"


def refuse_new_table(options: Mapping[str, str]) -> None:
    """Raises: ConfigurationError for the options that Spark 4.3 passes in a CREATE TABLE without columns.

    With columns it does not ask the source.
    """
    if "provider" in options and "owner" in options:
        raise ConfigurationError("CREATE TABLE USING", options["provider"], _VIEW, reason=_REASON)


def refuse_table(options: Mapping[str, str]) -> None:
    """Raises: ConfigurationError for a read without any option, as a SELECT from a table is."""
    if not options:
        reason = f"if this is a table that CREATE TABLE made: {_REASON[0].lower()}{_REASON[1:]}"
        raise ConfigurationError("stream", None, f"a stream's name or ARN; in SQL {_VIEW}", reason=reason)
