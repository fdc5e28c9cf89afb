"""Where the driver's processes of a Spark job log: to stderr, since Spark gives them no logging of their own."""

from __future__ import annotations

import logging
import os

from recordpublisher.publishers.errors import ConfigurationError

LOG_VARIABLE = "RECORDPUBLISHER_SPARK_LOG"
"""The level, an environment variable of the driver."""


def log_to_stderr() -> None:
    """Set the level, and a handler unless the process has one. Raises: ConfigurationError."""
    given = os.environ.get(LOG_VARIABLE, "WARNING")
    level = logging.getLevelNamesMapping().get(given.upper())
    if level is None:
        raise ConfigurationError(LOG_VARIABLE, given, "DEBUG, INFO, WARNING, ERROR or CRITICAL")
    if not logging.getLogger().handlers:
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("recordpublisher").setLevel(level)
