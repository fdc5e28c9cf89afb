"""The protobuf messages of the KPL's aggregation format, from descriptors made here: no generated file, no protoc.

Key tables are strings in the KPL's file; as bytes their UTF-8 is checked by the reader, by every protobuf runtime alike. Unknown
fields (tags) are skipped.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto


def _messages(package: str, of_record: int, records: int) -> Any:
    """The class of AggregatedRecord, whose sub-records and their fields are required, optional or repeated as said."""
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
"""As the KPL has it: a message for each sub-record."""
AggregatedColumns = _messages("recordpublisher.kpl.columns", _Field.LABEL_REPEATED, _Field.LABEL_OPTIONAL)
"""The same bytes as columns. A message that is not repeated and occurs again is merged with the one before, and what is repeated in it
is appended (protobuf's encoding, "Last One Wins"): so its parser makes three columns, and no object for each sub-record."""
