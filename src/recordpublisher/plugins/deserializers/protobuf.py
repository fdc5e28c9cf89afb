"""Protobuf: records that are one Protobuf message each."""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.formats import (
    PROTOBUF_DESCRIPTOR_FILE,
    PROTOBUF_MESSAGE,
    PROTOBUF_MODULE,
)
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch, V
from recordpublisher.publishers.user_code import exits_as_errors


class Protobuf(Generic[V]):
    """Records that are one message each, of a class that protoc generated: `Protobuf(Order)`. Raises: ConfigurationError for another."""

    def __init__(self, message: type[V]) -> None:
        parse: Any = getattr(message, "FromString", None)
        if parse is None:
            raise ConfigurationError("message", repr(message), "a class that protoc generated")
        self.into = message
        self._parse: Callable[[bytes], V] = parse

    def values(self, batch: RecordBatch) -> Sequence[V] | None:
        """The messages. Raises: DecodeError for a record that is no such message."""
        return list(map(self._parse, batch.data))


class ProtobufDeserializer(Protobuf[Any]):
    """Parses each record as one message, of a class that comes from a file of descriptors or a module. Raises: ConfigurationError."""

    def __init__(self, properties: Properties) -> None:
        name = properties.value(PROTOBUF_MESSAGE)
        pool = _pool(properties)
        try:
            descriptor = pool.FindMessageTypeByName(name or "")
        except KeyError as error:
            valid = "the full name of a message in the file or module, with its package"
            raise ConfigurationError(PROTOBUF_MESSAGE.key, name, valid) from error
        super().__init__(message_factory.GetMessageClass(descriptor))


def _pool(properties: Properties) -> Any:
    file, module = properties.value(PROTOBUF_DESCRIPTOR_FILE), properties.value(PROTOBUF_MODULE)
    if (file is None) == (module is None):
        reason = f"exactly one of it and {PROTOBUF_MODULE.key} is needed by flink.deserializer=protobuf"
        raise ConfigurationError(PROTOBUF_DESCRIPTOR_FILE.key, file, "a file of descriptors", reason=reason)
    if module is not None:
        try:
            with exits_as_errors():
                importlib.import_module(module)
        except Exception as error:  # whatever the module raises
            valid = "a module that can be imported"
            raise ConfigurationError(PROTOBUF_MODULE.key, module, valid, reason=str(error)) from error
        return descriptor_pool.Default()
    return _pool_of_file(file or "")


def _pool_of_file(file: str) -> Any:
    try:
        return pool_of_descriptors(Path(file).read_bytes())
    except (OSError, DecodeError, TypeError) as error:
        valid = "a file of descriptors with all imports, written by protoc --include_imports --descriptor_set_out=FILE"
        raise ConfigurationError(PROTOBUF_DESCRIPTOR_FILE.key, file, valid, reason=str(error)) from error


def pool_of_descriptors(content: bytes) -> Any:
    """The pool of a set of file descriptors. Raises: DecodeError, TypeError for what is none, or lacks an import."""
    pool = descriptor_pool.DescriptorPool()
    for described in descriptor_pb2.FileDescriptorSet.FromString(content).file:
        pool.Add(described)
    return pool
