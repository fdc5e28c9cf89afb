"""The connectors: this project's Spark source, qubole's on the newest Spark that it runs on, and awslabs' if its jar is given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from compare.tools import HERE, run

JOB = Path(__file__).with_name("job.py")
SPARK_3 = HERE.parents[1] / ".venvs" / "spark-3" / "bin" / "python"
AWSLABS_SLOTS = 8
"""It needs one for each shard: every task takes the whole time of a batch."""
CONNECTOR = "com.qubole.spark:spark-sql-kinesis_2.12:1.2.0_spark-3.0"


@dataclass(frozen=True, slots=True)
class Connector:
    """A connector: the Python with its Spark, Spark's configuration, its options for an endpoint and a folder, its format in Spark.

    `slots`: how many tasks Spark runs at once.
    """

    name: str
    python: str
    conf: dict[str, str]
    options: Callable[[str, Path], dict[str, str]]
    format: str = "kinesis"
    slots: int = 2

    def command(self, url: str, folder: Path, action: str) -> list[str]:
        """Starts a job in a folder, which goes on where an earlier one in it was killed."""
        given = {"format": self.format, "options": self.options(url, folder), "conf": self.conf, "slots": self.slots}
        given |= {"folder": str(folder), "action": action}
        return [self.python, str(JOB), json.dumps(given)]


def connectors(folder: Path) -> list[Connector]:
    """Each with its versions in the name. AWSLABS_JAR: the file of awslabs' connector, which is in no registry."""
    run("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={CONNECTOR}", f"-DoutputDirectory={folder}", cwd=folder)
    (jar,) = folder.glob("*.jar")
    spark_4, spark_3 = _spark(sys.executable), _spark(str(SPARK_3))
    found = [
        Connector(f"recordpublisher, Spark {spark_4}", sys.executable, {}, _ours),
        Connector(f"qubole 1.2.0, Spark {spark_3}", str(SPARK_3), {"spark.jars": str(jar)}, _qubole),
    ]
    if given := os.environ.get("AWSLABS_JAR"):
        name = f"awslabs {Path(given).stem.partition('_2.13-')[2]}, Spark {spark_4}"
        found.append(Connector(name, sys.executable, {"spark.jars": given}, _awslabs, "aws-kinesis", AWSLABS_SLOTS))
    return found


def _spark(python: str) -> str:
    command = [python, "-c", "import pyspark; print(pyspark.__version__)"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _ours(url: str, folder: Path) -> dict[str, str]:
    return {
        "stream": "orders",
        "startingPosition": "TRIM_HORIZON",
        "metadataLocation": str(folder / "claims"),
        "aws.endpoint": url,
        "aws.region": "us-east-1",
        "aws.credentials.provider.basic.accesskeyid": "local",
        "aws.credentials.provider.basic.secretkey": "local",
    }


def _qubole(url: str, _: Path) -> dict[str, str]:
    keys = {"awsAccessKeyId": "local", "awsSecretKey": "local", "awsUseInstanceProfile": "false"}
    return {"streamName": "orders", "startingPosition": "TRIM_HORIZON", "endpointUrl": url, **keys}


def _awslabs(url: str, folder: Path) -> dict[str, str]:
    """By default a batch ends when each shard was silent for 10 s, or has given 100,000 records: a steady stream would have none for long.

    10 s is the least that `maxFetchTimePerShardSec` takes.
    """
    options = {**_qubole(url, folder), "region": "us-east-1", "consumerType": "GetRecords"}
    del options["awsUseInstanceProfile"]
    return {f"kinesis.{key}": value for key, value in {**options, "maxFetchTimePerShardSec": "10"}.items()}
