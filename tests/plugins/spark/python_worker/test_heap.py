"""The garbage collection of Spark's Python processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from recordpublisher.plugins.spark.python_worker import COLLECTION_THRESHOLD

from processes.command_line import process_environment

REPORT = "import gc, recordpublisher.plugins.spark.python_worker; print(gc.get_freeze_count() > 1_000, gc.get_threshold()[0])"
AS_SPARK = "import sys, types; sys.modules['__main__'].__spec__ = types.SimpleNamespace(name='pyspark.daemon'); "


@pytest.mark.parametrize(
    ("code", "told"), [(AS_SPARK + REPORT, ["True", str(COLLECTION_THRESHOLD)]), (REPORT, ["False", "700"])]
)
def test_only_in_a_process_of_spark_is_what_it_had_imported_left_out_of_the_collection(code, told):
    done = subprocess.run(
        [sys.executable, "-c", code], env=process_environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == told
