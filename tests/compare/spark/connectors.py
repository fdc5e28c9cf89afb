"""Both connectors: this project's Spark source, and qubole's on the newest Spark that it runs on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from compare.tools import HERE, run

JOB = Path(__file__).with_name("job.py")
SPARK_3 = HERE.parents[1] / ".venvs" / "spark-3" / "bin" / "python"
CONNECTOR = "com.qubole.spark:spark-sql-kinesis_2.12:1.2.0_spark-3.0"


@dataclass(frozen=True, slots=True)
class Connector:
    """A connector: the Python with its Spark, Spark's configuration, and its options for an endpoint and a folder."""

    name: str
    python: str
    conf: dict[str, str]
    options: Callable[[str, Path], dict[str, str]]

    def command(self, url: str, folder: Path, action: str) -> list[str]:
        """Starts a job in a folder, which goes on where an earlier one in it was killed."""
        given = {"options": self.options(url, folder), "conf": self.conf, "folder": str(folder), "action": action}
        return [self.python, str(JOB), json.dumps(given)]


def connectors(folder: Path) -> list[Connector]:
    """Each with its versions in the name."""
    run("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={CONNECTOR}", f"-DoutputDirectory={folder}", cwd=folder)
    (jar,) = folder.glob("*.jar")
    return [
        Connector(f"recordpublisher, Spark {_spark(sys.executable)}", sys.executable, {}, _ours),
        Connector(f"qubole 1.2.0, Spark {_spark(str(SPARK_3))}", str(SPARK_3), {"spark.jars": str(jar)}, _qubole),
    ]


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
