"""The KPL's AggregatedRecord as protobuf messages."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

__all__ = ["AggregatedColumns", "AggregatedRecord", "DecodeError"]

_Field = descriptor_pb2.FieldDescriptorProto


def _messages(package: str, of_record: int, records: int) -> Any:
    """Make the message class of AggregatedRecord, with the given labels for its sub-records and their fields."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package)
    record = file.message_type.add(name="Record")
    explicit = _Field.LABEL_REPEATED if of_record == _Field.LABEL_REPEATED else _Field.LABEL_OPTIONAL
    record.field.add(name="partition_key_index", number=1, type=_Field.TYPE_UINT64, label=of_record)
    record.field.add(name="explicit_hash_key_index", number=2, type=_Field.TYPE_UINT64, label=explicit)
    record.field.add(name="data", number=3, type=_Field.TYPE_BYTES, label=of_record)
    whole = file.message_type.add(name="AggregatedRecord")
    whole.field.add(name="partition_key_table", number=1, type=_Field.TYPE_BYTES, label=_Field.LABEL_REPEATED)
    whole.field.add(name="explicit_hash_key_table", number=2, type=_Field.TYPE_BYTES, label=_Field.LABEL_REPEATED)
    whole.field.add(name="records", number=3, type=_Field.TYPE_MESSAGE, label=records, type_name=f".{package}.Record")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.AggregatedRecord"))


AggregatedRecord = _messages("recordpublisher.kpl", _Field.LABEL_REQUIRED, _Field.LABEL_REPEATED)
"""The message as the KPL defines it, with a message for each sub-record."""
AggregatedColumns = _messages("recordpublisher.kpl.columns", _Field.LABEL_REPEATED, _Field.LABEL_OPTIONAL)
"""A message that parses the same bytes as columns.

Here the sub-record message is not repeated but its fields are. Protobuf merges a message that occurs again with the one
before and appends its repeated fields ("Last One Wins"). So the parser fills three columns and makes no object for each
sub-record.
"""
