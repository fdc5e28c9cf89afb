"""The clients of the schedule: name, version, and the command that starts them, each time with what they need to go on."""

import sys
from collections.abc import Callable, Collection, Iterator
from importlib.metadata import version
from pathlib import Path

from compare.cost.readers import version_in
from compare.spark.connectors import Connector, connectors
from compare.tools import HERE, compiled, copied, java_command

ASYNC_KINESIS = HERE.parents[1] / ".venvs" / "truth" / "bin" / "python"
PYTHON = HERE / "truth" / "python"

Client = tuple[str, Callable[[str], list[str]]]


def clients(folder: Path, dynamodb: str, names: Collection[str] = ()) -> Iterator[Client]:
    """Each with its version in the name. Only those of these `names`, if there are any, are built."""
    made: dict[str, Callable[[], list[Client]]] = {
        "recordpublisher": lambda: [_ours(publisher, folder) for publisher in ("POLLING", "EFO")],
        "KCL": lambda: _kcl(folder, dynamodb),
        "Flink": lambda: _flink(folder),
        "boto3": lambda: [_boto3(folder)],
        "async-kinesis": lambda: [_async_kinesis(dynamodb)],
        "Spark": lambda: [_spark(connector, folder) for connector in connectors(folder)],
    }
    for name in names or made:
        yield from made[name]()


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


def _boto3(folder: Path) -> Client:
    command = [sys.executable, str(PYTHON / "with_boto3.py")]
    return f"a loop with boto3 {version('boto3')}", lambda url: [*command, url, str(folder / "boto3")]


def _async_kinesis(dynamodb: str) -> Client:
    command = [str(ASYNC_KINESIS), str(PYTHON / "with_async_kinesis.py")]
    return "async-kinesis 3.0.1, DynamoDB", lambda url: [*command, url, dynamodb]


def _spark(connector: Connector, folder: Path) -> Client:
    place = folder / connector.name.partition(" ")[0].strip(",")
    return connector.name, lambda url: connector.command(url, place, "print")
