"""A process that has imported the command line, and forks for each program: `python -m processes.forked.server SOCKET`.

It starts no thread, so that a fork is safe. Each program comes as one byte with four file descriptors: a connection, and the program's
stdin, stdout and stderr. The connection brings its module, arguments, folder and environment as a line of JSON; the number of the process
and at its end its exit status go back. The socket's end ends the server.
"""

import asyncio
import atexit
import gc
import importlib
import io
import json
import os
import runpy
import socket
import sys
import threading
from contextlib import suppress

from aiobotocore.config import AioConfig

from recordpublisher import Properties
from recordpublisher.cli.app import COMMANDS
from recordpublisher.publishers.kinesis.sdk.credentials import session_with_credentials
from recordpublisher.publishers.kinesis.trusted_cas import ca_bundle_path

LIBRARIES = (
    "aiohttp.web",
    "argparse",
    "botocore.docs.docstring",
    "recordpublisher.plugins.deserializers.avro",
    "recordpublisher.plugins.deserializers.glue",
    "recordpublisher.plugins.metrics.opentelemetry",
    "recordpublisher.plugins.sinks.kinesis",
    "recordpublisher.plugins.sinks.reactive",
    "recordpublisher.plugins.sinks.sql",
    "recordpublisher.publishers.fanout.publisher",
    "recordpublisher.publishers.kinesis.management",
    "recordpublisher.publishers.polling.publisher",
    "sqlalchemy.dialects.postgresql.psycopg",
    "typer._adapters",
)
"""Not numpy and what imports it: it starts threads."""
SERVICES = ("kinesis", "dynamodb", "s3")


def import_commands() -> None:
    """Import the commands, and the libraries that they import later."""
    for place in COMMANDS.values():
        importlib.import_module(f"recordpublisher.cli.{place.partition(':')[0]}")
    for name in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(name)
    asyncio.run(open_clients())
    gc.freeze()


async def open_clients() -> None:
    """Open a client of each service once. The SDK's models are read by threads, which end with the loop, and are kept for the commands."""
    region = "us-east-1"
    session = session_with_credentials(
        Properties({"aws.region": region, "aws.credentials.provider": "ENV_VAR"}), region
    )
    ca_bundle_path(session)
    for service in SERVICES:
        async with session.create_client(service, region_name=region, config=AioConfig(warm_up_loader_caches=True)):
            pass


def serve(control: socket.socket) -> str | None:
    """Fork for each program; wait for all at the end, so that their CPU counts as this process's. Returns the module to run here."""
    running = set()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 4)
        running -= {number for number in running if os.waitpid(number, os.WNOHANG if message else 0)[0]}
        if not message:
            return None
        if number := os.fork():
            running.add(number)
        else:
            control.close()
            return become_program(socket.socket(fileno=descriptors[0]), descriptors[1:])
        for descriptor in descriptors:
            os.close(descriptor)


def become_program(connection: socket.socket, streams: list[int]) -> str:
    """Fork once more: the parent tells of the program's end. The child has the program's streams, and only them; returns its module."""
    with connection, connection.makefile("r") as lines:
        request = json.loads(lines.readline())
        number = os.fork()
        if number:
            for descriptor in (0, 1, 2, *streams):
                os.close(descriptor)
            connection.sendall(f"{number}\n".encode())
            _, status = os.waitpid(number, 0)
            connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
            os._exit(0)
    if request["new_session"]:
        os.setsid()
    for descriptor, stream in enumerate(streams):
        os.dup2(stream, descriptor)
        os.close(stream)
    prepare(request)
    return request["module"]


def prepare(request: dict) -> None:
    """What the interpreter does as it starts: folder, environment, arguments, module path, streams."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = [request["module"], *request["arguments"]]
    places = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[:] = [os.getcwd(), *places, *(place for place in sys.path if place not in places)]
    importlib.invalidate_caches()
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)))
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "w", closefd=False)), errors="backslashreplace", line_buffering=True
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr


def run(module: str) -> None:
    """Run the module, and end as the interpreter does, but free nothing of what was imported: that takes as long as a short command."""
    code = 0
    try:
        runpy.run_module(module, run_name="__main__")
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        code = end.code
    threading._shutdown()  # waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    import_commands()
    if (program := serve(socket.socket(fileno=int(sys.argv[1])))) is not None:
        run(program)
