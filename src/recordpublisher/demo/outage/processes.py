"""Theatre: starts the endpoint, what carries the global watermark, and the subtasks, each a process of its own; hears them."""

from __future__ import annotations

import json
import secrets
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from recordpublisher.publishers.errors import RecordPublisherError

from ..processes import Actor, free_port, wait_for_port
from .event_log import Recording
from .subtask import FLINK

START_SECONDS = 40.0
"""How long processes may take to start on a loaded machine."""


class OutageFailedError(RecordPublisherError):
    """The replay could not be played to its end."""


class Theatre:
    """Owns the processes. Everything listens on this machine only."""

    def __init__(self, folder: Path, streams: dict[str, int], rule: str, timeout_ms: int) -> None:
        self._folder = folder
        self._streams = streams
        self._rule = rule
        self._timeout_ms = timeout_ms
        self._stack = ExitStack()
        self.subtasks: list[Actor] = []
        self.recording = Recording()

    def __enter__(self) -> Self:
        try:
            port = free_port()
            named = [part for name, count in self._streams.items() for part in ("--stream", f"{name}:{count}")]
            self._listening("recordpublisher", ["local", "--port", str(port), *named], "endpoint", port)
            self.url = f"http://127.0.0.1:{port}"
            self._tracking = self._start_tracker()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def access(self) -> dict[str, str]:
        """The properties that reach the endpoint."""
        return {
            "aws.endpoint": self.url,
            "aws.region": "us-east-1",
            "aws.credentials.provider.basic.accesskeyid": "demo",
            "aws.credentials.provider.basic.secretkey": "demo",
        }

    def start_subtasks(self, stream: str, parallelism: int, properties: dict[str, Any]) -> None:
        """Start every subtask and wait until each has said where it stands."""
        given = json.dumps({**self.access, **self._tracking, **properties})
        self.subtasks = [
            self._actor(
                "recordpublisher.demo.outage.subtask",
                [
                    *("--stream", stream, "--subtask", str(number), "--parallelism", str(parallelism)),
                    *("--state", str(self._folder / "state"), "--properties", given),
                ],
                f"subtask-{number}",
            )
            for number in range(parallelism)
        ]
        self._wait_for_all(parallelism)

    def stop_subtasks(self) -> None:
        """A good end: each takes its last checkpoint."""
        for actor in self.subtasks:
            actor.ask_to_stop()
        for actor in self.subtasks:
            actor.end(20)
        self.hear()

    def hear(self) -> None:
        """Take what the subtasks have said. Raises: OutageFailedError when one has ended by itself with an error."""
        for actor in self.subtasks:
            for told in actor.heard():
                self.recording.hear(told)
            if actor.has_failed:
                raise OutageFailedError(f"a subtask ended early:\n{actor.last_words()}")

    def _wait_for_all(self, count: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while len(self.recording.latest) < count:
            self.hear()
            if time.monotonic() > deadline:
                raise OutageFailedError(f"only subtasks {sorted(self.recording.latest)} started")
            time.sleep(0.05)

    def _start_tracker(self) -> dict[str, str]:
        """The coordinator of the rule; answers the properties that name it."""
        port, name, token = free_port(), self._rule, secrets.token_urlsafe(16)
        if name == FLINK:
            module, given = "recordpublisher.demo.outage.flink_rule", ["--port", str(port)]
            self._listening(module, [*given, "--timeout-ms", str(self._timeout_ms)], "tracker", port)
        else:
            self._listening("recordpublisher", ["tracker", "--port", str(port), "--token", token], "tracker", port)
        address = f"127.0.0.1:{port}"
        keys = {"tracker": name, "tracker.address": address, "tracker.token": token, "group": "outage"}
        return {f"flink.watermark.{key}": value for key, value in keys.items()}

    def _listening(self, module: str, arguments: list[str], name: str, port: int) -> None:
        actor = self._actor(module, arguments, name)
        if not wait_for_port(port, actor, START_SECONDS):
            raise OutageFailedError(f"the {name} did not start:\n{actor.last_words()}")

    def _actor(self, module: str, arguments: list[str], name: str) -> Actor:
        actor = Actor(module, arguments, self._folder / f"{name}.log")
        self._stack.callback(actor.kill)
        return actor
