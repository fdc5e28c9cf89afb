"""Checks the versions of Python, Spark and Java on this machine, and the Python of Spark's workers."""

import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec

from recordpublisher.demo.requirements import check_java
from recordpublisher.publishers.errors import RecordPublisherError

from .findings import Check, Finding, NotCheckedError, examine


async def version_findings() -> list[Finding]:
    """Return the findings about Python, and if pyspark is installed, about Spark with Java and the Python of Spark's workers."""
    checks: dict[str, Check] = {"Python": platform.python_version}
    if find_spec("pyspark") is not None:
        checks |= {"Spark": _spark, "Spark's Python": spark_python}
    return [await examine(name, check) for name, check in checks.items()]


def _spark() -> str:
    return f"pyspark {version('pyspark')}, with Java {check_java()}"


PYTHON_VARIABLE = "PYSPARK_PYTHON"
"""The environment variable that names the Python of Spark's workers. Without it Spark takes the `python3` of the PATH."""
_MODULE = "pyspark_recordpublisher"
_SECONDS = 60.0
# Spark has its own pyspark for the workers, so `pyspark` may be missing here.
_IMPORT = f"""
try:
    import {_MODULE}
except ModuleNotFoundError as error:
    if str(error.name).partition(".")[0] != "pyspark":
        raise
"""


def spark_python() -> str:
    """Check that the Python of Spark's workers can import this package.

    A `python3` of the PATH without this package is not a failure in itself, because most jobs do not use Spark.

    Raises: RecordPublisherError, which says what to do, if the Python that `PYSPARK_PYTHON` names cannot import the package.
    NotCheckedError if pyspark is missing, if that Python is not on this machine, or if a `python3` of the PATH lacks the package.
    """
    if find_spec("pyspark") is None:
        raise NotCheckedError("pyspark is not installed")
    given = os.environ.get(PYTHON_VARIABLE)
    python = given or "python3"
    found = shutil.which(python)
    if found is None and given and os.sep in given:
        raise NotCheckedError(f"{PYTHON_VARIABLE} is {given}, which is not on this machine")
    reason = "it is not on the PATH" if found is None else _why_not_importable(found)
    if reason is None:
        return f"{found} has {_MODULE}"
    words = (
        f"Spark starts {found or python} for its workers, which cannot import {_MODULE} ({reason}): a job ends with DATA_SOURCE_NOT_FOUND. "
        f"Set {PYTHON_VARIABLE}={sys.executable}, or install recordpublisher[spark] for {found or python}"
    )
    raise RecordPublisherError(words) if given else NotCheckedError(f"only for jobs of Spark: {words}")


def _why_not_importable(python: str) -> str | None:
    try:
        done = subprocess.run([python, "-c", _IMPORT], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else None
