"""Reports errors of this library to Spark's driver as one sentence, without the tracebacks of Python processes."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader

from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.user_code import cause_in_user_code

LOG = logging.getLogger("recordpublisher.spark")
HIDE = "SPARK_HIDE_TRACEBACK"
"""An environment variable that Spark reads when it reports the error of a Python process."""


@contextmanager
def one_sentence() -> Iterator[None]:
    """Report an error of this library as one sentence.

    Used around methods that Spark calls in a Python process, on the driver or in a task. The traceback is logged: at level ERROR if code of
    the user or of a plugin has a part in it, else at INFO. Spark ends the process after an error, so the variable that is set here affects
    nothing else. Other errors keep their tracebacks.
    """
    try:
        yield
    except RecordPublisherError as error:
        level = logging.INFO if cause_in_user_code(error) is None else logging.ERROR
        LOG.log(level, "Spark receives this error: %s", error, exc_info=error)
        if _is_process_of_spark():
            os.environ[HIDE] = "1"
        raise


class RefusedQuery(DataSourceStreamReader):  # type: ignore[misc] # pyspark is not typed here
    """The reader of a query that cannot start. It raises the error at its first call.

    Spark 4.3 hides an error of `streamReader` behind an UnboundLocalError of its own (`python_streaming_source_runner.py`).
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    @one_sentence()
    def _refuse(self, *_: Any) -> Any:
        """Raise the error."""
        raise self._error

    initialOffset = latestOffset = partitions = read = _refuse  # noqa: N815 - Spark's names


def _is_process_of_spark() -> bool:
    """Return whether Spark started this process, because it runs a module of pyspark or our daemon."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and str(spec.name).startswith(("pyspark.", "recordpublisher.plugins.spark."))
