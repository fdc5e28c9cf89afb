"""Runs the demo: starts the endpoint, the producer and the Spark job, waits for the output, and checks it."""

import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from recordpublisher.local import serve_in_thread
from recordpublisher.publishers.errors import RecordPublisherError

from .display import DemoProgress, ProgressDisplay
from .processes import ChildProcess
from .requirements import check_java, check_packages
from .result_checks import CheckResult, check_results
from .schedule import DAY_MS, SHARDS
from .spark_job import LOOKAHEAD_DAYS, OUT_OF_ORDERNESS_MS

STREAM = "flights"
TOTAL = 336_776
STALL_TIMEOUT_SECONDS = 240.0
"""The demo fails if no new row has arrived for this long. Starting Java on a loaded machine may take most of it."""


@dataclass(frozen=True, slots=True)
class DemoConfig:
    """Settings of the demo.

    - `seconds`: how many seconds the year of flights takes.
    - `kill`: whether the job is killed in the middle.
    - `folder`: where output and logs are kept; None for a temporary folder.
    """

    publisher: str
    seconds: float
    kill: bool = False
    folder: Path | None = None


class DemoFailedError(RecordPublisherError):
    """The demo could not be run to its end."""


def run_demo(config: DemoConfig) -> list[CheckResult]:
    """Run the demo, and return the results of its checks.

    Raises: ImportError if a package is missing; ConfigurationError if Java is missing; DemoFailedError if a process ends too early or
    writes no output.
    """
    check_packages()
    check_java()
    with ExitStack() as stack:
        folder = config.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="recordpublisher-demo-")))
        folder.mkdir(parents=True, exist_ok=True)
        progress, title = DemoProgress(TOTAL), f"{TOTAL:,} flights through {config.publisher}"
        display = stack.enter_context(ProgressDisplay(progress, title))
        display.print_line(f"{title}: the endpoint, the producer and the Spark job start")
        endpoint = stack.enter_context(serve_in_thread(streams={STREAM: SHARDS}))
        runner = DemoRunner(config, folder, endpoint.url, progress, display)
        stack.callback(runner.stop)
        runner.run()
        display.print_line("all rows have arrived; reading them back")
        return check_results(progress, folder, LOOKAHEAD_DAYS * DAY_MS + OUT_OF_ORDERNESS_MS)


class DemoRunner:
    """Owns the processes of the producer and of the Spark job."""

    def __init__(
        self, config: DemoConfig, folder: Path, url: str, progress: DemoProgress, display: ProgressDisplay
    ) -> None:
        self._config = config
        self._folder = folder
        self._url = url
        self._progress = progress
        self._display = display
        self._job = self._start_job()
        self._producer = ChildProcess(
            "recordpublisher.demo.producer",
            ["--endpoint", url, "--stream", STREAM, "--seconds", str(config.seconds)],
            folder / "producer.log",
        )
        self._has_killed = not config.kill

    def run(self) -> None:
        """Wait until both queries have written every row."""
        began, rows, changed_at = time.monotonic(), 0, 0.0
        while not self._progress.is_complete:
            elapsed = time.monotonic() - began
            self._read_messages()
            self._display.show(elapsed)
            self._kill_when_due()
            self._check_processes()
            if sum(self._progress.rows.values()) != rows:
                rows, changed_at = sum(self._progress.rows.values()), elapsed
            if elapsed - changed_at > STALL_TIMEOUT_SECONDS:
                raise DemoFailedError(self._stall_message())
            time.sleep(0.25)
        self._display.show(time.monotonic() - began)
        self._job.write_line("stop")
        self._job.wait_or_kill(20)

    def stop(self) -> None:
        """Kill both processes."""
        self._job.kill()
        self._producer.kill()

    def _start_job(self) -> ChildProcess:
        given = ["--endpoint", self._url, "--stream", STREAM, "--publisher", self._config.publisher]
        return ChildProcess(
            "recordpublisher.demo.spark_job", [*given, "--folder", str(self._folder)], self._folder / "job.log"
        )

    def _read_messages(self) -> None:
        for message in self._producer.read_messages():
            self._progress.add_producer_report(message)
        for message in self._job.read_messages():
            self._progress.add_query_progress(message)

    def _kill_when_due(self) -> None:
        """Kill the job with SIGKILL when a quarter of the flights have been written, and start it again."""
        if not self._has_killed and self._progress.rows.get("flights", 0) > self._progress.total / 4:
            self._has_killed = True
            self._job.kill()
            self._display.print_line("the Spark job was killed with kill -9 and is started again")
            self._job = self._start_job()

    def _check_processes(self) -> None:
        if self._job.has_ended:
            raise DemoFailedError(f"the Spark job ended early:\n{self._job.log_tail()}")
        if self._producer.has_failed:
            raise DemoFailedError(f"the producer failed:\n{self._producer.log_tail()}")

    def _stall_message(self) -> str:
        rows = ", ".join(f"{name} {count:,}" for name, count in self._progress.rows.items()) or "nothing"
        return f"no new rows for {STALL_TIMEOUT_SECONDS:.0f} s: {rows} of {TOTAL:,}\n{self._job.log_tail()}"
