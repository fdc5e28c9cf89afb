"""Snapshots of a job: made from the metrics of its workers, made from its stored positions, or read from another process."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import aiohttp
import msgspec
from msgspec.structs import replace

from recordpublisher.fetcher.global_watermark_rules import is_idle
from recordpublisher.fetcher.monitoring.metrics_exporter import (
    MetricsExporter,
    MetricsSource,
    WorkerHealth,
    WorkerMetrics,
)
from recordpublisher.fetcher.monitoring.shard_view import SHOWN_COUNTERS
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.safe_text import few_of, mask_passwords
from recordpublisher.publishers.shards import stream_name

from ..lag.job_snapshot import CommitSnapshot, JobSnapshot, ShardSnapshot, SnapshotSource, WorkerSnapshot
from ..lag.probe import LagProbe
from ..lag.rates import Rates
from .server import SNAPSHOT_PATH, UNAVAILABLE, DashboardServer, History, Unavailable

log = logging.getLogger("recordpublisher.metrics")
HISTORY_INTERVAL_SECONDS = 10.0
"""Time between two points of the charts (seconds). A point costs as much as one read by a page: 10 ms of CPU at 1,000 shards."""
OLD_SECONDS = 1.0
"""The shortest time between two computations of a snapshot (seconds), however many readers request it."""
RESPONSE_SECONDS = 10.0
UNREAD = "has unread records and wrote none for the alarm interval"


class LiveSnapshots:
    """Makes snapshots of a running job from the metrics of its workers on this machine. Nothing is computed unless a reader requests it.

    Owns the last snapshot, and the earlier values of counters that rates are computed from.

    - `job`: the name of the job, if it has one.
    """

    def __init__(self, source: MetricsSource, clock: Clock, idle_interval_ms: int, job: str | None = None) -> None:
        self._source = source
        self._job = job
        self._clock = clock
        self._idle_interval_ms = idle_interval_ms
        self._rates = Rates()
        self._making = asyncio.Lock()
        self._last: tuple[float, JobSnapshot] | None = None

    async def snapshot(self) -> JobSnapshot:
        """Return the current state of the job. Raises: RecordPublisherError while no worker responds."""
        async with self._making:  # Readers that call at the same time share one snapshot.
            if self._last is None or self._clock.monotonic() - self._last[0] >= OLD_SECONDS:
                made = await self._make()
                self._last = self._clock.monotonic(), made
            return self._last[1]

    async def _make(self) -> JobSnapshot:
        workers = sorted(await self._source.metrics(), key=lambda each: each.process)
        if not workers:
            raise RecordPublisherError("no worker of the job responds; see the log of the job")
        health = await self._source.health()
        written = {
            key: (of["records"] - of["unfinishedRecords"], of["bytes"])
            for each in workers
            for key, of in each.shards.items()
        }
        self._rates.add(self._clock.monotonic(), written)
        values_of = {each.process: each.values for each in workers}
        values = [*values_of.values()]
        # Workers learn the global watermark at different times. It never falls, so the highest value is the newest.
        watermarks = [value["globalWatermark"] for value in values if value["globalWatermark"] is not None]
        return JobSnapshot(
            job=self._job,
            time_ms=self._clock.now_ms(),
            shards=[self._shard(key, each, of) for each in workers for key, of in each.shards.items()],
            workers=[_worker(each, values_of.get(each.process, {})) for each in health],
            global_watermark=max(watermarks, default=None),
            alignment=alignment_sentence(workers),
        )

    def _shard(self, key: str, reader: WorkerMetrics, values: dict[str, Any]) -> ShardSnapshot:
        stream, _, shard = key.rpartition("/")
        records, payload = self._rates.per_second(key) or (None, None)
        return ShardSnapshot(
            stream=stream,
            shard=shard,
            process=reader.process,
            worker=reader.values["worker"],
            stage=values["stage"],
            lag_ms=values["lagMs"],
            records_per_second=records,
            bytes_per_second=payload,
            watermark=values["watermark"],
            is_idle=values["stage"] == "READING" and is_idle(values["silentMs"], self._idle_interval_ms),
            idle_ms=values["silentMs"],
            is_held=values["held"],
            is_excluded=values["excluded"],
            loss_ms=values["timeToRetentionLossMs"],
            counts=_counts(values),
            in_flight=values["unacknowledged"],
            has_alarm=values["alarm"],
            alarm=UNREAD if values["alarm"] else None,
            parents=(values["parents"] or "").split(),
        )


def _worker(health: WorkerHealth, values: dict[str, Any]) -> WorkerSnapshot:
    age_ms, worker, files = values.get("checkpointAgeMs"), values.get("worker"), values.get("committedFiles")
    commit = None
    if files is not None:
        commit = CommitSnapshot(files, values["committedBytes"], values["committedAgeMs"], values["uncommittedRecords"])
    counts = _counts(values) if values else None
    return WorkerSnapshot(
        health.process, health.responds, health.not_ready, age_ms, worker, commit, values.get("alarms"), counts
    )


def _counts(values: Mapping[str, Any]) -> dict[str, int]:
    return {title: values[name] for name, title in SHOWN_COUNTERS.items()}


def alignment_sentence(workers: Sequence[WorkerMetrics]) -> str:
    """Return in one sentence for which shard alignment now waits, and why."""
    # 1. Count the shards that alignment holds back.
    held = sum(each.values["heldShards"] for each in workers)
    shards = sum(each.values["openShards"] for each in workers)
    if not held:
        return "Alignment holds no shard back."
    held_back = "is held back: it waits" if held == 1 else "are held back: they wait"
    beginning = f"{held} of {shards} shards {held_back} for"
    # 2. Find the shard with the lowest watermark. Another process may read it.
    blocking = _lowest_shard(workers)
    if blocking is None:
        return f"{beginning} a shard of another process."
    worker, shard, values = blocking
    return f"{beginning} {shard} of worker {worker}, {_reason(values)}."


def _lowest_shard(workers: Sequence[WorkerMetrics]) -> tuple[int, str, Mapping[str, Any]] | None:
    found = [
        (each.process, shard, each.shards[shard])
        for each in workers
        if (shard := each.values["blockingShard"]) in each.shards
    ]
    return min(found, key=lambda one: _counting_watermark(one[2]), default=None)


def _counting_watermark(shard: Mapping[str, Any]) -> float:
    """Return the shard's next watermark, or its present one if there is no next one (epoch ms). Without both, return minus infinity."""
    watermark = shard["watermark"] if shard["nextWatermark"] is None else shard["nextWatermark"]
    return float("-inf") if watermark is None else watermark


def _reason(shard: Mapping[str, Any]) -> str:
    """Return why the shard's watermark does not rise."""
    if shard["stage"] == "ENDED":
        return "which has ended and whose children are not read yet"
    if shard["alarm"]:
        return f"which {UNREAD}"
    if shard["queuedRecords"]:
        return "whose records are read and wait to be written"
    behind_ms = shard["millisBehindLatest"]
    if behind_ms < 0:
        return "which has not been read yet"
    if behind_ms > 0:
        return f"which is {behind_ms / 1000:,.1f} s behind its newest record"
    return "which has no new records and is not idle yet"


class StoredSnapshots:
    """Makes snapshots of any job from its stored positions and the tips of its shards, both read again for every snapshot.

    Values that cannot be computed from them are None. Owns no connection.
    """

    def __init__(self, probe: LagProbe, clock: Clock) -> None:
        self._probe = probe
        self._clock = clock

    async def snapshot(self) -> JobSnapshot:
        """Return the current state of the job.

        Raises: KinesisError if the stream cannot be read; StateError if no positions are stored, or if they cannot be read.
        """
        return job_snapshot(
            await self._probe.read(), self._clock.now_ms(), self._probe.idle_intervals.waits_for_every_shard
        )


class JoinedSnapshots:
    """Joins the streams of one job in one snapshot. Owns the last snapshot. Nothing is read unless a reader requests it.

    - `sources`: one source for each stream.
    - `interval_seconds`: shortest time between two reads of the sources, for all readers together.
    - `job`: the name of the job, if it has one.
    """

    def __init__(
        self, sources: Sequence[SnapshotSource], clock: Clock, interval_seconds: float, job: str | None = None
    ) -> None:
        self._sources = sources
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._job = job
        self._reading = asyncio.Lock()
        self._last: tuple[float, JobSnapshot] | None = None

    async def snapshot(self) -> JobSnapshot:
        """Return the current state of the job, or the last snapshot if it is newer than `interval_seconds`.

        Raises: RecordPublisherError if a stream cannot be read.
        """
        async with self._reading:
            if self._last is None or self._clock.monotonic() - self._last[0] >= self._interval_seconds:
                read = _joined([await source.snapshot() for source in self._sources])
                self._last = self._clock.monotonic(), replace(read, job=self._job or read.job)
            return self._last[1]


def job_snapshot(shards: list[ShardSnapshot], time_ms: int, waits_for_idle: bool = False) -> JobSnapshot:
    """Return the snapshot of a job whose shards were read.

    - `waits_for_idle`: whether the job's watermarks also wait for idle shards.
    """
    counted = [shard for shard in shards if shard.watermark is not None and (waits_for_idle or not shard.is_idle)]
    lowest = min(counted, key=_watermark, default=None)
    return JobSnapshot(
        time_ms=time_ms,
        shards=shards,
        workers=_newest(
            WorkerSnapshot(shard.process, checkpoint_age_ms=shard.checkpoint_age_ms, worker=shard.worker)
            for shard in shards
            if shard.process is not None or shard.worker is not None
        ),
        global_watermark=None if lowest is None else lowest.watermark,
        alignment=None if lowest is None else _lowest_sentence(lowest, counted),
    )


def _joined(snapshots: Sequence[JobSnapshot]) -> JobSnapshot:
    """Return one snapshot of a job for the snapshots of its streams.

    The global watermark is the lowest one of the snapshots, with the `alignment` of that snapshot. The time is the oldest one.
    """
    marked = [snapshot for snapshot in snapshots if snapshot.global_watermark is not None]
    # Streams of one job share a global watermark, so the lowest one counts.
    lowest = min(marked, key=lambda snapshot: snapshot.global_watermark or 0, default=None)
    return JobSnapshot(
        time_ms=min(snapshot.time_ms for snapshot in snapshots),
        shards=[shard for snapshot in snapshots for shard in snapshot.shards],
        workers=_newest(worker for snapshot in snapshots for worker in snapshot.workers or ()),
        global_watermark=None if lowest is None else lowest.global_watermark,
        alignment=None if lowest is None else lowest.alignment,
    )


def _newest(readers: Iterable[WorkerSnapshot]) -> list[WorkerSnapshot] | None:
    """Return each worker once, with its newest checkpoint, or None if no worker is known. The workers may no longer be running."""
    newest: dict[tuple[str, int], WorkerSnapshot] = {}
    for reader in readers:
        key = (reader.worker or "", reader.process or 0)
        # The shards of one worker may have been stored by different checkpoints, of which the newest counts.
        if key not in newest or _age(reader) < _age(newest[key]):
            newest[key] = reader
    return [newest[key] for key in sorted(newest)] or None


def _age(worker: WorkerSnapshot) -> float:
    return float("inf") if worker.checkpoint_age_ms is None else worker.checkpoint_age_ms


def _watermark(shard: ShardSnapshot) -> int:
    return shard.watermark or 0


def _lowest_sentence(lowest: ShardSnapshot, shards: Sequence[ShardSnapshot]) -> str:
    ahead_ms = max(map(_watermark, shards)) - _watermark(lowest)
    return (
        f"The lowest watermark is that of {lowest.shard}, {ahead_ms / 1000:,.1f} s below the highest; "
        "stored positions do not show which shards are held."
    )


class HttpSnapshots:
    """Reads the snapshots that a running job serves, from another process. Owns no connection.

    - `url`: the URL that the job has logged, or its host and port.
    - `streams`: the streams whose shards a snapshot has.
    """

    def __init__(self, url: str, streams: Sequence[str]) -> None:
        url = url if "://" in url or ":" not in url else f"http://{url}"
        self._url = url.rstrip("/").removesuffix(SNAPSHOT_PATH) + SNAPSHOT_PATH
        self._streams = [stream_name(stream) for stream in streams]

    async def snapshot(self) -> JobSnapshot:
        """Return the current state of the job. Raises: RecordPublisherError if it does not respond, or does not read the streams."""
        try:
            snapshot = msgspec.json.decode(await self._read(), type=JobSnapshot)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            reason = str(error) or type(error).__name__
            words = f"no running job serves {self._url}: {reason}"
            # The reason may contain a URL with a password. Without an @ there is none, and an invalid port must stay visible.
            raise RecordPublisherError(mask_passwords(words) if "@" in words else words) from error
        shards = [shard for shard in snapshot.shards if shard.stream in self._streams]
        served = sorted({shard.stream for shard in snapshot.shards})
        if served and not shards:  # A job that serves no shard yet may still begin to read the streams.
            wanted = ", ".join(map(repr, self._streams))
            raise RecordPublisherError(f"the job does not read {wanted}; it reads {few_of(served)}")
        return msgspec.structs.replace(snapshot, shards=shards)

    async def _read(self) -> bytes:
        timeout = aiohttp.ClientTimeout(total=RESPONSE_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(self._url) as response:
            body = await response.read()
            if response.status == UNAVAILABLE:
                raise RecordPublisherError(msgspec.json.decode(body, type=Unavailable).error)
            response.raise_for_status()
            return body


class LiveDashboard(MetricsExporter):
    """The dashboard of a running job (`run --dashboard`). Owns the server.

    The server reads the metrics while a page is open, and every ten seconds for the charts.
    """

    def __init__(self, port: int, idle_interval_ms: int, job: str | None = None) -> None:
        self._port = port
        self._job = job
        self._idle_interval_ms = idle_interval_ms
        self._server: DashboardServer | None = None

    async def open(self, source: MetricsSource) -> None:
        """Listen, and log the URL. Raises: ConfigurationError if the port cannot be used."""
        clock = SystemClock()
        snapshots = LiveSnapshots(source, clock, self._idle_interval_ms, self._job)
        self._server = DashboardServer(snapshots, History(snapshots, clock, HISTORY_INTERVAL_SECONDS))
        url = await self._server.open(self._port)
        log.info("the dashboard is at %s", url)

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            await self._server.close()
