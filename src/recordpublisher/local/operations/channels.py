"""Channels: their settings, states and refusals. Nothing is delivered, neither to S3 nor to tables."""

from functools import partial
from typing import Any

import msgspec

from ..api_errors import invalid_argument
from ..queues.attached import Attached
from ..requests import channels as requests
from ..requests.queues import ListAttached
from ..streams.account import Account
from .attached import identity, on_demand_stream, page_of, stream_of

S3, TABLES = "S3DestinationConfiguration", "S3TablesDestinationConfiguration"
DEFAULT_FRESHNESS_SECONDS = 300
FORMATS = {S3: ("JSON", "STRING", "BYTE_ARRAY"), TABLES: ("JSON", "GSR_JSON")}


def create_channel(account: Account, request: requests.CreateChannel) -> object:
    """Store a channel; it is ACTIVE after the set delay."""
    stream = on_demand_stream(account, request.stream_configuration_list)
    record = request.stream_configuration_list[0].record_configuration
    destination = _destination(request)
    if record.record_format_type not in FORMATS[destination]:
        raise invalid_argument(f"{record.record_format_type} is not delivered to {destination}.")
    if destination == TABLES and record.schema_arn is None:
        raise invalid_argument("Tables need a GSRSchemaARN.")
    settings = _settings(request, destination)
    channel = account.channels.create(
        request.channel_name, stream, settings, request.tags or {}, account.delays.consumer
    )
    return {"ChannelDescription": _description(account, channel)}


def describe_channel(account: Account, request: requests.ChannelRequest) -> object:
    """Describe a channel."""
    return {"ChannelDescription": _description(account, account.channels.find(request.channel_arn))}


def list_channels(account: Account, request: ListAttached) -> object:
    """List the channels by name, page by page."""
    return page_of(account, account.channels, request, partial(_summary, account), "ChannelSummaries")


def update_channel(account: Account, request: requests.UpdateChannel) -> object:
    """Change the freshness or the logging of a channel, at once; nothing else of it can be changed."""
    channel = account.channels.find(request.channel_arn)
    now = account.clock.now_ms()
    channel.require_active(now)
    for name, update in ((S3, request.s3), (TABLES, request.s3_tables)):
        if update is not None and name not in channel.settings:
            raise invalid_argument(f"The channel {channel.name} has no {name}.")
        if update is not None:
            channel.settings[name] |= {"DataFreshnessInSeconds": update.data_freshness_in_seconds}
    if request.logging_configuration is not None:
        channel.settings["LoggingConfiguration"] = msgspec.to_builtins(request.logging_configuration)
    channel.set_busy("UPDATING", now + account.delays.consumer)
    return {"ChannelDescription": _description(account, channel)}


def delete_channel(account: Account, request: requests.ChannelRequest) -> None:
    """Begin to delete a channel."""
    channel = account.channels.find(request.channel_arn)
    if channel.busy_status != "DELETING":
        channel.set_busy("DELETING", account.clock.now_ms() + account.delays.consumer)


def _destination(request: requests.CreateChannel) -> str:
    if (request.s3 is None) == (request.s3_tables is None):
        raise invalid_argument(f"Exactly one of {S3} and {TABLES} must be given.")
    if request.s3_tables is not None and len(request.s3_tables.s3_tables_configuration_list) != 1:
        raise invalid_argument("S3TablesConfigurationList must have exactly one entry.")
    return TABLES if request.s3 is None else S3


def _settings(request: requests.CreateChannel, destination: str) -> dict[str, Any]:
    """What the description shows of a request, with the defaults."""
    given = msgspec.to_builtins(request)
    shown = given[destination]
    bucket = shown.get("StorageConfiguration", {})
    errors = {name: bucket[name] for name in ("BucketARN", "ExpectedBucketOwner") if name in bucket}
    shown = {"DataFreshnessInSeconds": DEFAULT_FRESHNESS_SECONDS, "DeadLetterQueueS3Configuration": errors, **shown}
    kept = ("ServiceExecutionRoleARN", "StreamConfigurationList", "EncryptionConfiguration", "LoggingConfiguration")
    logging = {"LoggingConfiguration": {"CloudWatchLogs": {"Enabled": False}}}
    return {**logging, **{name: given[name] for name in kept if given[name] is not None}, destination: shown}


def _description(account: Account, channel: Attached) -> dict[str, object]:
    settings = dict(channel.settings)
    created = {"StreamCreationTimestamp": channel.stream.created_ms / 1000}
    streams = [{**stream, **created} for stream in settings.pop("StreamConfigurationList")]
    return {**_identity(account, channel), "StreamConfigurationList": streams, **settings}


def _summary(account: Account, channel: Attached) -> dict[str, object]:
    kind = "S3" if S3 in channel.settings else "S3_TABLES"
    return {**_identity(account, channel), "ChannelDestinationType": kind, "Streams": [stream_of(channel)]}


def _identity(account: Account, channel: Attached) -> dict[str, object]:
    return {**identity(account, channel, "Channel"), "ChannelId": channel.id}
