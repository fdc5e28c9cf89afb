"""The inputs of operations on channels, which the service delivers to S3 or to tables of Apache Iceberg."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from .fields import Arn, Name, Request, Tags, text

ChannelArn = Annotated[str, text(2048, r"arn:aws.*:kinesis:.*:\d{12}:channel/\S+")]
RoleArn = Annotated[str, text(512, r"arn:aws[-a-z0-9]*:iam::\d{12}:role/[a-zA-Z_0-9+=,.@\-_/]+")]
SchemaArn = Annotated[
    str, text(512, r"arn:aws[-a-z0-9]*:glue:[-a-z0-9]+:\d{12}:schema/[-a-zA-Z0-9_$#.]+/[-a-zA-Z0-9_$#.]+")
]
BucketArn = Annotated[str, text(2048, r"arn:aws[-a-z0-9]*:s3:::[a-z0-9._-]{3,63}")]
TableBucketArn = Annotated[str, text(2048, r"arn:aws[-a-z0-9]*:s3tables:[-a-z0-9]+:\d{12}:bucket/[a-z0-9_-]{3,63}")]
ErrorPrefix = Annotated[str, text(512, r"[0-9A-Za-z!\-_'.*()\/]+")]
KeyTemplate = Annotated[str, text(1024, r"[0-9A-Za-z!\-_'.*()\/=:{}]+")]
ColumnName = Annotated[str, text(255, r"[a-zA-Z0-9\.\_]+")]
LogGroup = Annotated[str, text(512, r"[\.\-_/#A-Za-z0-9]+")]
LogStream = Annotated[str, text(512, r"[^:*]*")]
TableName = Annotated[str, text(255, r"[0-9a-z_]+")]
Owner = Annotated[str, Meta(min_length=12, max_length=12, pattern=r"^(?:\d{12})\Z")]


class Shown(Request, frozen=True, omit_defaults=True):
    """A part of an input that descriptions show again; what is left out is not shown."""


class RecordConfiguration(Shown, frozen=True):
    record_format_type: Literal["GSR_JSON", "JSON", "STRING", "BYTE_ARRAY"]
    schema_arn: SchemaArn | None = msgspec.field(name="GSRSchemaARN", default=None)


class ChannelStreamConfiguration(Shown, frozen=True):
    stream_arn: Arn
    record_configuration: RecordConfiguration


class DeadLetterQueueS3Configuration(Shown, frozen=True):
    bucket_arn: BucketArn
    expected_bucket_owner: Owner
    error_output_prefix: ErrorPrefix | None = None


class S3StorageConfiguration(Shown, frozen=True):
    bucket_arn: BucketArn
    expected_bucket_owner: Owner
    compression_type: Literal["NONE", "GZIP", "ZSTD"]
    output_key_template: KeyTemplate | None = None
    storage_class: Literal["STANDARD", "INTELLIGENT_TIERING", "GLACIER_IR"] | None = None


class S3DestinationConfiguration(Shown, frozen=True, kw_only=True):
    data_freshness_in_seconds: int | None = None
    dead_letter_queue_s3_configuration: DeadLetterQueueS3Configuration | None = None
    storage_configuration: S3StorageConfiguration


class PartitionField(Shown, frozen=True):
    transform: Literal["TIME_HOUR"]
    source_name: ColumnName


class PartitionSpec(Shown, frozen=True):
    partition_fields: Annotated[list[PartitionField], Meta(min_length=1, max_length=10)]


class S3TablesConfiguration(Shown, frozen=True):
    table_bucket_arn: TableBucketArn
    namespace: TableName
    table_name: TableName
    compression_type: Literal["NONE", "ZSTD", "SNAPPY"]
    partition_spec: PartitionSpec | None = None


class S3TablesDestinationConfiguration(Shown, frozen=True, kw_only=True):
    data_freshness_in_seconds: int | None = None
    dead_letter_queue_s3_configuration: DeadLetterQueueS3Configuration
    s3_tables_configuration_list: Annotated[list[S3TablesConfiguration], Meta(min_length=1, max_length=10_000)]


class ChannelEncryptionConfiguration(Shown, frozen=True):
    encryption_type: Literal["KMS"]
    key_id: Annotated[str, Meta(min_length=1, max_length=2048)]


class CloudWatchLogs(Shown, frozen=True):
    enabled: bool
    log_group_name: LogGroup | None = None
    log_stream_name: LogStream | None = None


class ChannelLoggingConfiguration(Shown, frozen=True):
    cloud_watch_logs: CloudWatchLogs


class CreateChannel(Request, frozen=True):
    channel_name: Name
    role_arn: RoleArn = msgspec.field(name="ServiceExecutionRoleARN")
    stream_configuration_list: Annotated[list[ChannelStreamConfiguration], Meta(min_length=1, max_length=10_000)]
    s3: S3DestinationConfiguration | None = msgspec.field(name="S3DestinationConfiguration", default=None)
    s3_tables: S3TablesDestinationConfiguration | None = msgspec.field(
        name="S3TablesDestinationConfiguration", default=None
    )
    encryption_configuration: ChannelEncryptionConfiguration | None = None
    tags: Tags | None = None
    logging_configuration: ChannelLoggingConfiguration | None = None


class ChannelRequest(Request, frozen=True):
    """An input that names a channel."""

    channel_arn: ChannelArn


class DestinationUpdate(Request, frozen=True):
    data_freshness_in_seconds: int


class UpdateChannel(ChannelRequest, frozen=True, kw_only=True):
    s3: DestinationUpdate | None = msgspec.field(name="S3DestinationConfiguration", default=None)
    s3_tables: DestinationUpdate | None = msgspec.field(name="S3TablesDestinationConfiguration", default=None)
    logging_configuration: ChannelLoggingConfiguration | None = None
