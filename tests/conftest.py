"""For all tests: a slow example is the machine's fault, not the code's; tests of Spark need Java 17."""

import os
import re
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("patient", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

JAVA = 17
NO_JAVA = f"Java {JAVA} or newer is missing: tests of Spark are skipped"


def has_java() -> bool:
    """Whether Spark finds a Java that it runs on: that of JAVA_HOME, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=os.path.join(home, "bin") if home else None)
    if program is None:
        return False
    said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    return version is not None and int(version[1]) >= JAVA


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs Java where there is none, with one line that says so; where CI=true that is a failure."""
    needing = [item for item in items if item.get_closest_marker("spark")]
    if not needing or has_java():
        return
    if os.environ.get("CI") == "true":
        raise pytest.UsageError(NO_JAVA)
    for item in needing:
        item.add_marker(pytest.mark.skip(reason=NO_JAVA))
