"""The format without a running Spark: a batch read is refused; what Spark's many processes do not need is not imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

from recordpublisher.plugins.spark import KinesisSource
from recordpublisher.publishers.errors import ConfigurationError

from processes.command_line import process_environment

CHECKED = """
import sys
from recordpublisher.plugins.spark import KinesisSource
KinesisSource({"stream": "orders", "aws.region": "us-east-1", "metadatalocation": sys.argv[1]}).schema()
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"botocore", "aiobotocore", "boto3", "aiohttp", "sqlalchemy"}))
"""


def test_c2_spark_read_is_refused_and_names_available_now():
    source = KinesisSource({"stream": "orders", "metadatalocation": "/claims"})
    with pytest.raises(ConfigurationError, match=r"spark.read.*valid: spark.readStream.*availableNow=True"):
        source.reader(None)


def test_a_process_that_checks_the_options_imports_no_sdk(tmp_path):
    command = [sys.executable, "-c", CHECKED, str(tmp_path)]
    done = subprocess.run(command, env=process_environment(), capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
