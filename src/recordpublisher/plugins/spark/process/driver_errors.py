"""Reports errors of this library to Spark's driver as one sentence, without the tracebacks of Python processes."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.user_code import cause_in_user_code

from .heap import is_process_of_spark

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
        if is_process_of_spark():
            os.environ[HIDE] = "1"
        raise
