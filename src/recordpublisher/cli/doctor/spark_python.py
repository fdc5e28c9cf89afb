"""Whether the Python that Spark starts for its workers has this package: without it a job ends with DATA_SOURCE_NOT_FOUND."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec

from recordpublisher.publishers.errors import RecordPublisherError

from .findings import NotCheckedError

VARIABLE = "PYSPARK_PYTHON"
"""The environment variable from which Spark takes its workers' Python; else it is the python3 of the PATH."""
_MODULE = "pyspark_recordpublisher"
_SECONDS = 60.0
# Spark brings its own pyspark for the workers, so that may be missing
_IMPORT = f"""
try:
    import {_MODULE}
except ModuleNotFoundError as error:
    if str(error.name).partition(".")[0] != "pyspark":
        raise
"""


def spark_python() -> str:
    """The workers' Python. Raises: RecordPublisherError with what to do, NotCheckedError.

    A `python3` of the PATH without this package is no problem of its own: most jobs are not for Spark. So it is said, and does not fail.
    """
    if find_spec("pyspark") is None:
        raise NotCheckedError("pyspark is not installed")
    given = os.environ.get(VARIABLE)
    python = given or "python3"
    found = shutil.which(python)
    if found is None and given and os.sep in given:
        raise NotCheckedError(f"{VARIABLE} is {given}, which is not on this machine")
    reason = "it is not on the PATH" if found is None else _why_not_importable(found)
    if reason is None:
        return f"{found} has {_MODULE}"
    words = (
        f"Spark starts {found or python} for its workers, which cannot import {_MODULE} ({reason}): a job ends with DATA_SOURCE_NOT_FOUND. "
        f"Set {VARIABLE}={sys.executable}, or install recordpublisher[spark] for {found or python}"
    )
    raise RecordPublisherError(words) if given else NotCheckedError(f"only for jobs of Spark: {words}")


def _why_not_importable(python: str) -> str | None:
    try:
        done = subprocess.run([python, "-c", _IMPORT], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else None
