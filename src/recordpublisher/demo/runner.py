"""The stage: starts the endpoint, the producer and the Spark job, watches them, and asks for the verdict at the end."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from recordpublisher.publishers.errors import RecordPublisherError

from .display import Screen
from .processes import Actor, free_port, wait_for_port
from .progress import Story
from .requirements import check_java, check_packages
from .result_checks import Finding, findings
from .schedule import SHARDS
from .spark_job import DAY_MS, LOOKAHEAD_DAYS, OUT_OF_ORDERNESS_MS

STREAM = "flights"
TOTAL = 336_776
PATIENCE_SECONDS = 90.0
"""How long no new row may come out before the demo is given up; a Java start on a loaded machine takes most of it."""


@dataclass(frozen=True, slots=True)
class Play:
    """How the demo is played: by which publisher, how many seconds, and whether the job is killed in the middle."""

    publisher: str
    seconds: float
    kill: bool = False
    folder: Path | None = None


class DemoFailedError(RecordPublisherError):
    """The demo could not be played to its end."""


def perform(play: Play) -> list[Finding]:
    """Play it. Raises: ConfigurationError when Java is missing; DemoFailedError when somebody ends too early or nothing comes out."""
    check_packages()
    check_java()
    with ExitStack() as stack:
        folder = play.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="recordpublisher-demo-")))
        folder.mkdir(parents=True, exist_ok=True)
        story = Story(TOTAL)
        screen = stack.enter_context(Screen(story, f"{TOTAL:,} flights through {play.publisher}"))
        url = _endpoint(folder, stack)
        stage = Stage(play, folder, url, story, screen)
        stack.callback(stage.clear)
        stage.play()
        screen.say("everything has arrived; reading it back")
        return findings(story, folder, LOOKAHEAD_DAYS * DAY_MS + OUT_OF_ORDERNESS_MS)


def _endpoint(folder: Path, stack: ExitStack) -> str:
    """Start `recordpublisher local` and answer its URL."""
    port = free_port()
    arguments = ["local", "--port", str(port), "--stream", f"{STREAM}:{SHARDS}"]
    actor = Actor("recordpublisher", arguments, folder / "endpoint.log")
    stack.callback(actor.kill)
    if not wait_for_port(port, actor):
        raise DemoFailedError(f"the embedded endpoint did not start:\n{actor.last_words()}")
    return f"http://127.0.0.1:{port}"


class Stage:
    """Owns the two processes."""

    def __init__(self, play: Play, folder: Path, url: str, story: Story, screen: Screen) -> None:
        self._play = play
        self._folder = folder
        self._url = url
        self._story = story
        self._screen = screen
        self._job = self._start_job()
        self._producer = Actor(
            "recordpublisher.demo.producer",
            ["--endpoint", url, "--stream", STREAM, "--seconds", str(play.seconds)],
            folder / "producer.log",
        )
        self._has_killed = not play.kill

    def play(self) -> None:
        """Watch until everything has arrived."""
        begun, rows, moved = time.monotonic(), 0, 0.0
        while not self._story.has_arrived:
            elapsed = time.monotonic() - begun
            self._hear()
            self._screen.show(elapsed)
            self._kill_when_due()
            self._check_actors()
            if sum(self._story.rows.values()) != rows:
                rows, moved = sum(self._story.rows.values()), elapsed
            if elapsed - moved > PATIENCE_SECONDS:
                raise DemoFailedError(self._what_is_missing())
            time.sleep(0.25)
        self._screen.show(time.monotonic() - begun)
        self._job.say("stop")
        self._job.end(20)

    def clear(self) -> None:
        """Leave no process behind."""
        self._job.kill()
        self._producer.kill()

    def _start_job(self) -> Actor:
        given = ["--endpoint", self._url, "--stream", STREAM, "--publisher", self._play.publisher]
        return Actor(
            "recordpublisher.demo.spark_job", [*given, "--folder", str(self._folder)], self._folder / "job.log"
        )

    def _hear(self) -> None:
        for told in self._producer.heard():
            self._story.hear_producer(told)
        for told in self._job.heard():
            self._story.hear_query(told)

    def _kill_when_due(self) -> None:
        """kill -9 the job once a quarter of the flights came out, and start it again."""
        if not self._has_killed and self._story.rows.get("flights", 0) > self._story.total / 4:
            self._has_killed = True
            self._job.kill()
            self._screen.say("the Spark job was killed with kill -9 and is started again")
            self._job = self._start_job()

    def _check_actors(self) -> None:
        if self._job.has_ended:
            raise DemoFailedError(f"the Spark job ended early:\n{self._job.last_words()}")
        if self._producer.has_failed:
            raise DemoFailedError(f"the producer failed:\n{self._producer.last_words()}")

    def _what_is_missing(self) -> str:
        rows = ", ".join(f"{name} {count:,}" for name, count in self._story.rows.items()) or "nothing"
        return f"nothing came out for {PATIENCE_SECONDS:.0f} s: {rows} of {TOTAL:,}\n{self._job.last_words()}"
