"""The look from outside: `recordpublisher lag --check`, as cron would run it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 1.0
"""Longer than the checkpoint interval of the play."""


def lag_check(access: Mapping[str, str], stream: str, state: Path, properties: Mapping[str, Any]) -> tuple[int, str]:
    """Its exit code, and what it said on stderr."""
    pairs = {**access, "flink.alarm.interval": properties["flink.alarm.interval"]}
    given = [part for key, value in pairs.items() for part in ("-p", f"{key}={value}")]
    command = ["lag", stream, "--state", str(state), "--check", "--patience", str(PATIENCE_SECONDS), *given]
    done = subprocess.run(
        [sys.executable, "-m", "recordpublisher", *command], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr.strip().removeprefix("recordpublisher: ")
