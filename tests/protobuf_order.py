"""A Protobuf message with a field of each kind: `Order`, as protoc generates it."""

from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    text_format,
    timestamp_pb2,
    wrappers_pb2,
)

_FILE = """
name: "fakes/order.proto" package: "fakes" syntax: "proto3"
dependency: "google/protobuf/timestamp.proto" dependency: "google/protobuf/duration.proto"
dependency: "google/protobuf/wrappers.proto" dependency: "google/protobuf/struct.proto"
enum_type { name: "Kind" value { name: "NEW" number: 0 } value { name: "OLD" number: 1 } }
message_type {
  name: "Item"
  field { name: "name" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "kinds" number: 2 type: TYPE_ENUM type_name: ".fakes.Kind" label: LABEL_REPEATED }
}
message_type {
  name: "Order"
  field { name: "id" number: 1 type: TYPE_UINT64 label: LABEL_OPTIONAL }
  field { name: "price" number: 2 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  field { name: "raw" number: 3 type: TYPE_BYTES label: LABEL_OPTIONAL }
  field { name: "kind" number: 4 type: TYPE_ENUM type_name: ".fakes.Kind" label: LABEL_OPTIONAL }
  field { name: "first" number: 5 type: TYPE_MESSAGE type_name: ".fakes.Item" label: LABEL_OPTIONAL }
  field { name: "items" number: 6 type: TYPE_MESSAGE type_name: ".fakes.Item" label: LABEL_REPEATED }
  field { name: "counts" number: 7 type: TYPE_MESSAGE type_name: ".fakes.Order.CountsEntry" label: LABEL_REPEATED }
  field { name: "at" number: 8 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" label: LABEL_OPTIONAL }
  field { name: "took" number: 9 type: TYPE_MESSAGE type_name: ".google.protobuf.Duration" label: LABEL_OPTIONAL }
  field { name: "note" number: 10 type: TYPE_MESSAGE type_name: ".google.protobuf.StringValue" label: LABEL_OPTIONAL }
  field { name: "paid" number: 11 type: TYPE_BOOL label: LABEL_OPTIONAL proto3_optional: true oneof_index: 0 }
  nested_type {
    name: "CountsEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".fakes.Item" label: LABEL_OPTIONAL }
  }
  oneof_decl { name: "_paid" }
}
message_type {
  name: "Free"
  field { name: "more" number: 1 type: TYPE_MESSAGE type_name: ".google.protobuf.Struct" label: LABEL_OPTIONAL }
}
message_type {
  name: "Tree"
  field { name: "name" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "children" number: 2 type: TYPE_MESSAGE type_name: ".fakes.Tree" label: LABEL_REPEATED }
}
"""

_pool: Any = descriptor_pool.DescriptorPool()
for _module in (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2):
    _pool.AddSerializedFile(_module.DESCRIPTOR.serialized_pb)
_pool.Add(text_format.Parse(_FILE, descriptor_pb2.FileDescriptorProto()))


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"fakes.{name}"))


Order, Item, Free, Tree = map(_message, ("Order", "Item", "Free", "Tree"))
