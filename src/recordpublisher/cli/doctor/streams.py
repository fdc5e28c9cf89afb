"""Checks what the service allows for a stream, and how the hash keys are distributed over its open shards.

Nothing is changed: calls that read are made, others are checked by DryRun.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recordpublisher.publishers.base import check_clock
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import ConfigurationError, FatalKinesisError, KinesisError, RecordPublisherError
from recordpublisher.publishers.fanout.config import FanOutConfig
from recordpublisher.publishers.kinesis.management import ManagementClient
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import uses_fan_out
from recordpublisher.publishers.safe_text import counted
from recordpublisher.publishers.shards import Shard, arn_of, stream_name

from .findings import CHECK_WOULD_CHANGE_SOMETHING, Check, Finding, NotCheckedError, examine

MAX_CONSUMERS = 20
"""Most consumers of a stream (service limit); 50 with on-demand advantage."""


@dataclass(frozen=True, slots=True)
class StreamUse:
    """The calls that a job makes for a stream.

    - `consumer`: name of the fan-out consumer, which the job registers unless `consumer_arn` is set; None for polling.
    - `writes`: the API calls by which the job writes to the stream.
    - `copied_bytes`: largest record that the job may write to the stream; None if it is not known.
    """

    reads: bool = True
    consumer: str | None = None
    consumer_arn: str | None = None
    has_tags: bool = False
    writes: tuple[str, ...] = ()
    copied_bytes: int | None = None


def stream_use_of(properties: Properties, stream: str, writes: bool = False) -> StreamUse:
    """Return the calls that a job makes for one of its streams. `writes`: whether the job also puts records into the stream."""
    calls = ("PutRecord", "PutRecords") if writes else ()
    if not uses_fan_out(properties):
        return StreamUse(writes=calls)
    try:
        config = FanOutConfig.of(properties)
    except ConfigurationError:  # Another finding reports this error.
        return StreamUse(writes=calls)
    given = config.configured_arn(stream_name(stream))
    return StreamUse(
        consumer=config.consumer_name or "",
        consumer_arn=None if given is None else given.text,
        has_tags=bool(config.tags),
        writes=calls,
    )


class StreamChecks:
    """Makes the checks of one stream, in order. It owns the results of early checks that later ones need."""

    def __init__(
        self, client: ManagementClient, stream: str, use: StreamUse, clock: Clock, *, knows_dry_run: bool = False
    ) -> None:
        """Prepare the checks. `knows_dry_run`: whether the endpoint is known to honour `DryRun`. Otherwise the checks find that out."""
        self._client = client
        self._stream = stream
        self._use = use
        self._clock = clock
        self._shards: list[Shard] = []
        self._arn = arn_of(stream)
        self._consumer_arn: str | None = None
        self._key: str | None = None
        self.knows_dry_run = knows_dry_run
        """Whether the endpoint honours `DryRun`: given, or found by the checks."""
        self.is_unreachable = False
        """Whether no call about the stream can succeed: its shards could not be listed, although no permission was missing."""
        self.is_inactive = False
        """Whether the stream cannot be used because it is being created or deleted."""
        self.max_record_bytes: int | None = None
        """The largest record that the stream takes, once the checks have found it."""

    async def findings(self) -> list[Finding]:
        """Return the findings about the clock, the settings, the consumers, and each IAM action that the use of the stream needs."""
        checks: list[tuple[str, Check]] = [
            ("clock", self._clock_offset),
            ("kinesis:ListShards", self._list_shards),
            ("distribution", lambda: check_hash_key_shares(self._shards)),
            ("kinesis:DescribeStreamSummary", self._describe),
        ]
        if self._use.reads:  # A job that reads by fan-out polls too, to find out whether it has missed records.
            checks += [
                ("kinesis:GetShardIterator", self._dry_run_iterator),
                ("kinesis:GetRecords", self._dry_run_get_records),
            ]
        if self._use.consumer is not None:
            checks += [
                ("kinesis:DescribeStreamConsumer", self._find_consumer),
                ("consumer quota", self._quota),
                ("kinesis:SubscribeToShard", self._dry_run_subscribe),
                *((f"kinesis:{api}", _not_checked) for api in self._changes()),
            ]
        if self._use.copied_bytes is not None:
            checks.append(("record size", self._record_size))
        checks += [(f"kinesis:{api}", self._dry_run_put(api)) for api in self._use.writes]
        name = stream_name(self._stream)
        findings = [
            await examine(f"{name}: {each}", check if self._can_be_asked(check) else _because_of_list_shards)
            for each, check in checks
        ]
        return findings + [await examine(f"{name}: {each}", _not_checked) for each in self._key_actions()]

    def _can_be_asked(self, check: Check) -> bool:
        return not self.is_unreachable or (self.is_inactive and check == self._describe)

    def _changes(self) -> list[str]:
        if self._use.consumer_arn is not None:
            return []
        tags = ["TagResource"] if self._use.has_tags else []
        return ["RegisterStreamConsumer", "DeregisterStreamConsumer", *tags]

    def _key_actions(self) -> list[str]:
        """Return the KMS actions that the use of the stream needs. There are none without a KMS key, or with the key that AWS manages."""
        if self._key is None or self._key.endswith("alias/aws/kinesis"):
            return []
        return ["kms:Decrypt", *(["kms:GenerateDataKey"] if self._use.writes else [])]

    async def _clock_offset(self) -> str:
        try:
            server_ms = await self._client.server_time_ms(self._stream)
        except RecordPublisherError:
            return _because_of_list_shards()
        return check_clock(self._clock.now_ms(), server_ms)

    async def _list_shards(self) -> str:
        try:
            self._shards = await self._client.list_shards(self._stream)
        except RecordPublisherError as error:
            is_refused = isinstance(error, FatalKinesisError) and error.code.startswith("AccessDenied")
            self.is_unreachable = not is_refused  # Without the permission for this call, others may still be allowed.
            if self.is_unreachable and await self._is_inactive():
                self.is_inactive = True
                raise NotCheckedError(
                    "the stream is being created or deleted: see the check kinesis:DescribeStreamSummary"
                ) from error
            raise
        return counted(sum(not shard.closed for shard in self._shards), "open shard")

    async def _is_inactive(self) -> bool:
        """Return whether the stream is being created or deleted. Then ListShards fails, and `_describe` reports what to do."""
        try:
            found = await self._client.describe_settings(self._stream)
        except RecordPublisherError:
            return False
        return found.stream.status not in ("ACTIVE", "UPDATING")

    async def _describe(self) -> str:
        try:
            found = await self._client.describe_settings(self._stream)
        except FatalKinesisError as error:
            if self._use.writes and not self._use.reads:
                raise NotCheckedError(
                    f"{error.code}; without this permission the job puts records of up to 1 MiB, distributed by key"
                ) from error
            if self._use.consumer is None or self._use.consumer_arn is not None or self._arn is not None:
                raise NotCheckedError(f"{error.code}; the job needs it only for the retention") from error
            raise
        self._arn, self._key = found.stream.arn, found.encryption_key
        self.max_record_bytes = found.max_record_bytes
        if found.stream.status == "DELETING":
            raise RecordPublisherError(
                "the stream is being deleted: name another one, or create it again when it is gone"
            )
        if found.stream.status not in ("ACTIVE", "UPDATING"):
            raise RecordPublisherError(f"the stream is {found.stream.status}: wait until it is ACTIVE")
        order = "" if found.distributes_by_key else "; AUTO record distribution: records of one key are in no order"
        return f"{found.stream.status}, {found.stream.mode}, retention {found.retention_hours} h{order}"

    def _record_size(self) -> str:
        largest, copied = self.max_record_bytes, self._use.copied_bytes
        if largest is None or copied is None:
            raise NotCheckedError(
                "it is not known how large the records of this stream and of the streams that are read may be"
            )
        if copied > largest:
            raise RecordPublisherError(
                f"the streams that are read may have records of {copied // 1024} KiB, but this stream accepts only "
                f"{largest // 1024} KiB. Raise its limit: "
                f"aws kinesis update-max-record-size --max-record-size-in-ki-b {copied // 1024} --stream-arn {self._arn}"
            )
        return f"{largest // 1024} KiB, enough for what is read"

    async def _find_consumer(self) -> str:
        if self._use.consumer_arn is not None:
            self._consumer_arn = self._use.consumer_arn
            raise NotCheckedError("the consumer's ARN is set, so the job does not call DescribeStreamConsumer")
        if self._arn is None:
            raise NotCheckedError("the ARN of the stream is not known")
        name = self._use.consumer or ""
        found = await self._client.describe_consumer(self._arn, name)
        if found is not None:
            self._consumer_arn = found.arn
            return f"'{name}' is {found.status}"
        return f"allowed; the job registers '{name}'"

    async def _quota(self) -> str:
        if self._arn is None:
            raise NotCheckedError("the ARN of the stream is not known")
        if self._consumer_arn is not None:
            raise NotCheckedError("the job does not register a consumer")
        try:
            count = len(await self._client.list_consumers(self._arn))
        except FatalKinesisError as error:
            raise NotCheckedError(f"{error.code}; the job does not need it") from error
        if count >= MAX_CONSUMERS:
            raise RecordPublisherError(
                f"the stream has {count} of at most {MAX_CONSUMERS} consumers (50 with on-demand advantage). Deregister one: "
                f"recordpublisher consumers deregister {self._stream} NAME"
            )
        return f"{count} of {MAX_CONSUMERS} are registered"

    async def _dry_run_iterator(self) -> str:
        await self._dry_run(
            "GetShardIterator", **self._named(), ShardId=self._shard().shard_id, ShardIteratorType="LATEST"
        )
        self.knows_dry_run = True
        return "allowed"

    async def _dry_run_get_records(self) -> str:
        iterator = await self._client.get_shard_iterator(self._shard(), StartingPosition.latest())
        return await self._dry_run("GetRecords", ShardIterator=iterator, Limit=1)

    async def _dry_run_subscribe(self) -> str:
        if self._consumer_arn is None:
            raise NotCheckedError("the consumer is not registered yet")
        return await self._dry_run(
            "SubscribeToShard",
            ConsumerARN=self._consumer_arn,
            ShardId=self._shard().shard_id,
            StartingPosition={"Type": "LATEST"},
        )

    def _dry_run_put(self, api: str) -> Check:
        record = {"Data": b"recordpublisher doctor", "PartitionKey": "doctor"}

        async def check() -> str:
            if not self.knows_dry_run:  # Without `DryRun`, the call could put the record.
                await self._find_out_dry_run()
            return await self._dry_run(
                api, **self._named(), **(record if api == "PutRecord" else {"Records": [record]})
            )

        return check

    async def _find_out_dry_run(self) -> None:
        """Find out whether the endpoint honours `DryRun`, with a call that only reads.

        Raises: NotCheckedError if that call fails. A job that only writes may lack the permission for it.
        """
        try:
            await self._dry_run_iterator()
        except RecordPublisherError as error:
            raise NotCheckedError("it is not known whether the endpoint honours DryRun") from error

    async def _dry_run(self, api: str, **parameters: Any) -> str:
        try:
            await self._client.dry_run(api, **parameters)
        except KinesisError as error:
            if isinstance(error, FatalKinesisError) and error.code == "DryRunIgnored":
                raise NotCheckedError("the endpoint does not support DryRun") from error
            raise
        return "allowed"

    def _shard(self) -> Shard:
        if not self._shards:
            raise NotCheckedError("no shard is known")
        return next((shard for shard in self._shards if not shard.closed), self._shards[0])

    def _named(self) -> dict[str, str]:
        arn = arn_of(self._stream)
        return {"StreamName": self._stream} if arn is None else {"StreamARN": arn}


def _because_of_list_shards() -> str:
    raise NotCheckedError("see the check kinesis:ListShards")


def _not_checked() -> str:
    raise NotCheckedError(f"{CHECK_WOULD_CHANGE_SOMETHING}: look at the IAM policy")


# --- how the hash keys of a stream are distributed over its open shards ---------------------------------------------------------------

MAX_TIMES_EVEN_SHARE = 4
"""A shard may have at most this many times its even share of the hash keys."""
MAX_SHARD_PERCENT = 90
"""The largest share of the hash keys that a shard may have in a stream of few shards (percent)."""


def check_hash_key_shares(shards: Sequence[Shard]) -> str:
    """Return in words which share of the hash keys the largest open shard has.

    Raises: RecordPublisherError if it is so large that the shard gets most of the records; NotCheckedError if no shard is known.
    """
    open_shards = [shard for shard in shards if not shard.closed]
    if not open_shards:
        raise NotCheckedError("no shard is known")
    if len(open_shards) == 1:
        return "one open shard takes all hash keys"
    largest = max(open_shards, key=_size)
    percent = 100 * _size(largest) / sum(map(_size, open_shards))
    if percent > min(MAX_SHARD_PERCENT, MAX_TIMES_EVEN_SHARE * 100 / len(open_shards)):
        raise RecordPublisherError(
            f"{largest.shard_id} takes {percent:.0f} % of the hash keys of {len(open_shards)} open shards. Split it: "
            f"recordpublisher split {largest.stream} {largest.shard_id}"
        )
    return f"the largest of {len(open_shards)} open shards takes {percent:.0f} % of the hash keys"


def _size(shard: Shard) -> int:
    return shard.hash_range.end - shard.hash_range.start + 1
