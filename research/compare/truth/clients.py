"""The clients of the schedule: name, version, and the command that starts them, each time with what they need to go on."""

import sys
from collections.abc import Callable
from pathlib import Path

from compare.cost.readers import version_in
from compare.spark.connectors import Connector, connectors
from compare.tools import HERE, compiled, copied, java_command

ASYNC_KINESIS = HERE.parents[1] / ".venvs" / "truth" / "bin" / "python"
PYTHON = HERE / "truth" / "python"

Client = tuple[str, Callable[[str], list[str]]]


def clients(folder: Path, dynamodb: str) -> list[Client]:
    """Each with its version in the name."""
    return [
        *(_ours(publisher, folder) for publisher in ("POLLING", "EFO")),
        *_kcl(folder, dynamodb),
        *_flink(folder),
        _async_kinesis(dynamodb),
        *(_spark(connector, folder) for connector in connectors(folder)),
    ]


def _ours(publisher: str, folder: Path) -> Client:
    state = str(folder / f"ours-{publisher}")
    return f"recordpublisher, {publisher}", lambda url: [sys.executable, str(PYTHON / "ours.py"), url, publisher, state]


def _kcl(folder: Path, dynamodb: str) -> list[Client]:
    target = copied("kcl", folder)
    command = java_command(target, "Work.java")
    name = f"KCL {version_in(target)}"

    def client(application: str) -> Client:
        return f"{name}, {application}", lambda url: [*command, url, dynamodb, "orders", application]

    return [client("polling"), client("fan-out")]


def _flink(folder: Path) -> list[Client]:
    target = copied("flink", folder)
    command = compiled(target, "Read.java")
    name = f"Flink's connector {version_in(target)}"

    def client(publisher: str) -> Client:
        checkpoints = folder / f"flink-{publisher}"

        def start(url: str) -> list[str]:
            complete = sorted(checkpoints.glob("*/chk-*/_metadata"), key=lambda file: file.stat().st_mtime)
            last = [f"file://{complete[-1].parent}"] if complete else []
            return [*command, url, "orders", publisher, str(checkpoints), *last]

        return f"{name}, {publisher}", start

    return [client("POLLING"), client("EFO")]


def _async_kinesis(dynamodb: str) -> Client:
    command = [str(ASYNC_KINESIS), str(PYTHON / "with_async_kinesis.py")]
    return "async-kinesis 3.0.1, DynamoDB", lambda url: [*command, url, dynamodb]


def _spark(connector: Connector, folder: Path) -> Client:
    place = folder / connector.name.partition(" ")[0].strip(",")
    return connector.name, lambda url: connector.command(url, place, "print")
