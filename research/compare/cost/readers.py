"""The clients that are compared: how each is built, which version it is, and the command that reads with it."""

import json
import re
import shutil
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks.processes import PEERS
from compare.tools import HERE, compiled, run

COST = HERE / "cost"
KINESIS_ARTIFACT = re.compile(r"/(amazon-kinesis-client|flink-connector-kinesis|kinesis)-([0-9][^/:]*)\.jar")


@dataclass(frozen=True)
class Reader:
    """A client: `command` is followed by URL, polling or fan-out, and the numbers of the meter."""

    name: str
    version: str
    command: list[str]
    ways: tuple[str, ...] = ("polling", "fan-out")


def _python(name: str, script: str) -> Callable[[Path], Reader]:
    return lambda _: Reader(name, version(name), [sys.executable, str(COST / "python" / script)])


_ours = _python("recordpublisher", "ours.py")
_boto3 = _python("boto3", "with_boto3.py")
_aiobotocore = _python("aiobotocore", "with_aiobotocore.py")


def _peer(name: str, script: str, *ways: str) -> Callable[[Path], Reader]:
    """One in the peers' environment (`make peers`)."""
    program = f"from importlib.metadata import version; print(version('{name}'))"
    command = [str(PEERS), str(COST / "python" / script)]
    return lambda _: Reader(name, run(str(PEERS), "-c", program).strip(), command, ways)


_async_kinesis = _peer("async-kinesis", "with_async_kinesis.py", "polling")
_kcl_rs = _peer("kcl-rs", "with_kcl_rs.py", "polling", "fan-out")


def _java(name: str, libraries: str, source: str, *options: str) -> Callable[[Path], Reader]:
    def build(folder: Path) -> Reader:
        target = folder / source
        target.mkdir()
        for file in (HERE / libraries / "pom.xml", COST / "Meter.java", COST / f"{source}.java"):
            shutil.copy(file, target)
        command = compiled(target, "Meter.java", f"{source}.java")
        return Reader(name, version_in(target), command)

    return build


_sdk = _java("AWS SDK for Java", "java", "Sdk")
_kcl = _java("KCL", "kcl", "Kcl")
_flink = _java("Flink's connector", "flink", "Flink")


def _javascript(folder: Path) -> Reader:
    target = Path(shutil.copytree(HERE / "javascript", folder / "javascript"))
    shutil.copy(COST / "read.mjs", target)
    run("npm", "ci", "--no-audit", "--no-fund", "--silent", cwd=target)
    found = json.loads((target / "package.json").read_text())["dependencies"]["@aws-sdk/client-kinesis"]
    return Reader("AWS SDK for JavaScript", found, ["node", str(target / "read.mjs")])


def _go(folder: Path) -> Reader:
    target = Path(shutil.copytree(HERE / "go", folder / "go"))
    shutil.copy(COST / "main.go", target)
    run("go", "build", "-o", "read", ".", cwd=target)
    found = re.search(r"service/kinesis v(\S+)", (target / "go.mod").read_text())
    assert found is not None
    return Reader("AWS SDK for Go", found[1], [str(target / "read")])


_READERS = {
    "recordpublisher": _ours,
    "boto3": _boto3,
    "aiobotocore": _aiobotocore,
    "async-kinesis": _async_kinesis,
    "kcl-rs": _kcl_rs,
    "AWS SDK for Java": _sdk,
    "KCL": _kcl,
    "Flink's connector": _flink,
    "AWS SDK for JavaScript": _javascript,
    "AWS SDK for Go": _go,
}


def readers(folder: Path, names: Collection[str] = ()) -> list[Reader]:
    """These clients, or all, built in the folder. Raises: AssertionError for one that cannot be built."""
    return [build(folder) for name, build in _READERS.items() if not names or name in names]


def version_in(folder: Path) -> str:
    """The version of the Kinesis library on the classpath of a folder's pom.xml."""
    found = KINESIS_ARTIFACT.search((folder / "classpath").read_text())
    assert found is not None, folder
    return found[2]
