"""Parses Protobuf messages with the .proto text that the AWS Glue Schema Registry keeps. Needs the extra `glue`."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from google.protobuf import message_factory
from google.protobuf.message import DecodeError

from recordpublisher.extras import install_command
from recordpublisher.publishers.errors import ConfigurationError

from .protobuf import pool_of_descriptors

MAX_COMPILE_SECONDS = 60
_FILE = "schema.proto"
_LARGEST_INDEX_BYTES = 5
"""The length of an unsigned 32-bit number as a Protobuf varint."""


def message_decoder(definition: str) -> Callable[[bytes], Any]:
    """Return a function that parses the output of the registry's Protobuf serialiser: the index of the message, then the message.

    The compiler runs as a separate process, which takes some 100 ms. Call this function in a thread.

    Raises: ValueError if the definition cannot be compiled; ConfigurationError if the extra `glue` is missing.
    """
    descriptor = pool_of_descriptors(_compile(definition)).FindFileByName(_FILE)
    messages = sorted(_with_nested(descriptor.message_types_by_name.values()), key=lambda each: str(each.full_name))
    parsers = [message_factory.GetMessageClass(each).FromString for each in messages]

    def decode(payload: bytes) -> Any:
        index, start = _index(payload)
        if index >= len(parsers):
            raise ValueError(f"it names message {index} of a schema that has {len(parsers)}")
        try:
            return parsers[index](payload[start:])
        except DecodeError as error:
            raise ValueError(f"it is not a message {messages[index].full_name}: {error}") from error

    return decode


def _with_nested(messages: Iterable[Any]) -> Iterator[Any]:
    """Yield messages at every depth, including those of maps, because the Java serialiser counts them all, sorted by full name."""
    for message in messages:
        yield message
        yield from _with_nested(message.nested_types)


def _index(payload: bytes) -> tuple[int, int]:
    """Return the index of the message, and where the message begins (bytes). Raises: ValueError if there is no index."""
    index = 0
    for place, byte in enumerate(payload[:_LARGEST_INDEX_BYTES]):
        index |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return index, place + 1
    raise ValueError("it does not begin with the index of a message")


def _reasons(printed: str) -> str:
    """Return the errors in the compiler's output, without its log and its warnings."""
    return "; ".join(line for line in printed.splitlines() if line.startswith(_FILE) and ": warning: " not in line)


def _compile(definition: str) -> bytes:
    if find_spec("grpc_tools") is None:
        reason = f"the schema of a record is Protobuf: {install_command('glue')}"
        raise ConfigurationError("flink.deserializer", "glue", "glue with the extra 'glue'", reason=reason)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, _FILE).write_text(definition, encoding="utf-8")
        to = Path(folder, "descriptors")
        options = ["--proto_path=.", "--include_imports", f"--descriptor_set_out={to}", _FILE]
        try:
            # `-m grpc_tools.protoc` adds the path of google/protobuf/*.proto itself
            subprocess.run(
                [sys.executable, "-m", "grpc_tools.protoc", *options],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=MAX_COMPILE_SECONDS,
                check=True,
            )
        except subprocess.CalledProcessError as error:
            raise ValueError(_reasons(error.stderr) or f"the compiler ended with {error.returncode}") from error
        except subprocess.TimeoutExpired as error:
            raise ValueError(f"it was not compiled within {MAX_COMPILE_SECONDS} s") from error
        return to.read_bytes()
