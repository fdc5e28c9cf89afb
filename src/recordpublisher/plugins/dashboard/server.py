"""Serves the page of a job and its snapshots on loopback, for a browser or a program on this machine."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import os
from collections import deque
from contextlib import suppress
from importlib.resources import files

import msgspec

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import ConfigurationError, RecordPublisherError

from ..lag.job_snapshot import HistoryPoint, SnapshotSource, point_of
from ..metrics.http_pages import HttpPages, Page

log = logging.getLogger("recordpublisher.metrics")
HOST = "127.0.0.1"
SNAPSHOT_PATH, HISTORY_PATH = "/snapshot.json", "/history.json"
UNAVAILABLE = 503
HISTORY_SECONDS = 1_800.0


class DashboardServer:
    """Serves the page, the snapshots and the history of a job. Owns the listening socket, and the task that keeps the history.

    Every request for a snapshot reads a new one.

    - `history`: keeps the totals for charts. Without it, the charts begin when the page is opened.
    """

    def __init__(self, source: SnapshotSource, history: History | None = None) -> None:
        self._source = source
        self._history = history
        self._keeping: asyncio.Task[None] | None = None
        pages = {"/": self._page, SNAPSHOT_PATH: self._snapshot, HISTORY_PATH: self._past}
        self._pages = HttpPages(pages, is_local=True)

    async def open(self, port: int) -> str:
        """Listen, and return the URL. Port 0 selects a free port. Raises: ConfigurationError if the port cannot be used."""
        try:
            port = await self._pages.listen(HOST, port)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ConfigurationError("port", port, "a free port of this machine, or 0", reason=reason) from error
        if self._history is not None:
            self._keeping = asyncio.create_task(self._history.run())
        return f"http://{HOST}:{port}"

    async def close(self) -> None:
        """Stop listening and close every connection."""
        # The task reads the source, which may be closed after this call, so the task is stopped first.
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
        await self._pages.close()

    async def _page(self) -> Page:
        return dashboard_page()

    async def _past(self) -> Page:
        return Page(
            msgspec.json.encode([] if self._history is None else self._history.points), content_type="application/json"
        )

    async def _snapshot(self) -> Page:
        try:
            snapshot = await self._source.snapshot()
        except RecordPublisherError as error:
            body = msgspec.json.encode(Unavailable(str(error)))
            return Page(body, status=UNAVAILABLE, content_type="application/json")
        return Page(msgspec.json.encode(snapshot), content_type="application/json")


def dashboard_page() -> Page:
    """Return one HTML document with style and script inside.

    A browser runs only this script, and lets it connect only to its own server.
    """
    folder = files(__package__) / "web"
    html, style, script = ((folder / f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    policy = (
        "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        f"style-src 'unsafe-inline'; script-src '{_hash_of(script)}'"
    )
    body = html.replace("{style}", style).replace("{script}", script).encode()
    return Page(body, content_type="text/html; charset=utf-8", headers={"Content-Security-Policy": policy})


def _hash_of(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


class Unavailable(msgspec.Struct, frozen=True):
    """The body of a response with the status `UNAVAILABLE`, while the job cannot be read."""

    error: str


class History:
    """Keeps the totals of the last half hour, so that a page that is opened later can draw them.

    Adds a point every `interval_seconds`, even if no page is open.
    """

    def __init__(self, source: SnapshotSource, clock: Clock, interval_seconds: float) -> None:
        self._source = source
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._points: deque[HistoryPoint] = deque(maxlen=round(HISTORY_SECONDS / interval_seconds))

    @property
    def points(self) -> list[HistoryPoint]:
        """The points, the oldest first."""
        return [*self._points]

    async def run(self) -> None:
        """Add points until cancelled."""
        while True:
            self._points.append(await self._point())
            await asyncio.sleep(self._interval_seconds)

    async def _point(self) -> HistoryPoint:
        try:
            return point_of(await self._source.snapshot())
        except RecordPublisherError:  # The job cannot be read now, so the chart has a gap.
            return HistoryPoint(self._clock.now_ms())
        except Exception:
            log.exception("the dashboard cannot read the job, so its charts have a gap")
            return HistoryPoint(self._clock.now_ms())
