"""Runs a measured Spark job as a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark_jobs import scale_job


def run_job(options: Mapping[str, str], folder: Path, batches: int, **environment: str) -> dict[str, Any]:
    """Run this many batches into the noop sink; returns the output of `scale_job`. `folder / "site"` may have plugins."""
    source = Path(scale_job.__file__)
    paths = [str(folder / "site"), str(source.parents[1]), *(path for path in sys.path if path.endswith("src"))]
    given = {"metadataLocation": str(folder / "claims"), "maxTasks": "2", **options}
    told = subprocess.run(
        [sys.executable, str(source), json.dumps({"options": given, "folder": str(folder), "batches": batches})],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]),
            "PYSPARK_PYTHON": sys.executable,
            **environment,
        },
    )
    answer: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return answer


def cpu_between(batches: list[dict[str, Any]], kind: str) -> float:
    """Microseconds of CPU for each row that a kind of process used from the end of the first of these batches to that of the last."""
    rows = sum(batch["rows"] for batch in batches[1:])
    return (batches[-1]["cpu"][kind] - batches[0]["cpu"][kind]) / rows * 1e6
