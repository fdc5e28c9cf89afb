"""`recordpublisher tracker`: the global watermark for jobs of many processes and machines."""

import asyncio
import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from recordpublisher.publishers.errors import ConfigurationError

from ..execution import arguments_as_options, print_note, run_until_signal
from ..options import Port

VARIABLE = "RECORDPUBLISHER_TRACKER_TOKEN"


def tracker(
    port: Port = 4570,
    host: Annotated[
        str,
        typer.Option(help="Address to listen on. Use 0.0.0.0 or an address of this machine to accept other machines."),
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(help="The token of the subtasks. Other users of this machine can see it on the command line."),
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the token.")] = None,
    certificate: Annotated[
        str | None, typer.Option(metavar="FILE", help="This tracker's certificate (PEM): serve over TLS only.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="FILE", help="Private key of the certificate (PEM, without a password).")
    ] = None,
    client_ca: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="CA certificates (PEM): every client needs a certificate of them."),
    ] = None,
) -> None:
    """Serve the tracker of the global watermark for jobs of several processes, until stopped.

    The token can also be set in RECORDPUBLISHER_TRACKER_TOKEN.

    Example: recordpublisher tracker --port 0 --token-file token
    """
    with arguments_as_options("port", "host"):
        run_until_signal(_serve(host, port, token_of(token, token_file), (certificate, key, client_ca)))


async def _serve(host: str, port: int, token: str, tls_files: tuple[str | None, str | None, str | None]) -> None:
    from recordpublisher.plugins.trackers.tcp.server import TrackerServer
    from recordpublisher.plugins.trackers.tcp.tls import server_context

    logging.getLogger("recordpublisher.tracker").setLevel(logging.INFO)
    tls = server_context(*tls_files, names=("--certificate", "--key", "--client-ca"))
    async with TrackerServer(token, host, port, tls=tls) as server:
        print_note(f"the tracker listens {'' if tls is None else 'over TLS '}at {server.address}")
        await asyncio.Event().wait()


def token_of(token: str | None, file: Path | None) -> str:
    """Return the token from the file, else from the option, else from the environment.

    Raises: ConfigurationError if the file cannot be read, or if there is no token.
    """
    if file is not None:
        try:
            token = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError("--token-file", str(file), "a file with the token", reason=str(error)) from error
    found = (token or os.environ.get(VARIABLE) or "").strip()
    if not found:
        raise ConfigurationError("--token", None, f"--token, --token-file or the variable {VARIABLE}")
    return found
