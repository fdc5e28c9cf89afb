"""Starts Spark jobs as processes, and kills them at armed pauses or at random times."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyspark

from processes.command_line import ROOT
from processes.repeated_work import repeated
from spark_jobs import killable_format, killable_job
from spark_jobs.queries import link_entries, spark_home

JOB = Path(killable_job.__file__)
WAIT_SECONDS = 300.0


def python_of(version: str | None) -> str:
    """That of an older PySpark, as `make spark-versions` installs it; None: this one."""
    return sys.executable if version is None else str(ROOT / f".venvs/spark-{version}/bin/python")


class Job:
    """A job that can be started again and again over one folder. `sink`: parquet, foreach (three actions a batch) or kinesis, which
    needs the options of its `target`. `form`: the source, "killable", or "kinesis" with pauses after it. `version`: of an older PySpark;
    with SPARK=4.0.2 in the environment all jobs run on that one.
    """

    def __init__(
        self,
        options: dict[str, str],
        folder: Path,
        sink: str,
        master: str,
        target: dict[str, str] | None = None,
        form: str = "killable",
        version: str | None = os.environ.get("SPARK"),
        **conf: str,
    ) -> None:
        self.folder = folder
        self._python = python_of(version)
        self._has_the_tests_home = self._python == sys.executable and not master.startswith("local-cluster")
        self._given: dict[str, Any] = {
            "options": {**options, killable_format.FOLDER: str(folder)},
            "folder": str(folder),
            "sink": sink,
            "form": form,
            "master": master,
            "target": {**(target or {}), killable_format.FOLDER: str(folder)},
            "conf": conf,
        }

    def start(self, finish: bool = False) -> Running:
        last = {"maxRecordsPerBatch": "1000000"}
        options = {**self._given["options"], **(last if finish else {})}
        given = {**self._given, "options": options, "finish": finish}
        home = spark_home() if self._has_the_tests_home else home_in(self.folder, self._python)
        return Running([self._python, str(JOB), json.dumps(given)], self.folder, home)

    def finish(self) -> None:
        """Run to the tip as of now."""
        with self.start(finish=True) as running:
            assert running.process.wait(2 * WAIT_SECONDS) == 0, running.errors()

    def numbers(self, spark: Any) -> list[list[int]]:
        """The numbers of the records in each output, sorted."""
        outputs = sorted(self.folder.glob("out*"))
        return [
            sorted(int(row["n"]) for row in spark.read.parquet(str(path)).select("n").collect()) for path in outputs
        ]


class Running:
    """One process of a job, with everything it started."""

    def __init__(self, command: list[str], folder: Path, home: Path) -> None:
        self._folder = folder
        self._log = folder / f"job-{time.monotonic_ns()}.log"
        source = Path(killable_format.__file__).parents[1]
        paths = os.pathsep.join([str(source), *(path for path in sys.path if path.endswith("src"))])
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([paths, os.environ.get("PYTHONPATH", "")]),
            "PYSPARK_PYTHON": command[0],
            "SPARK_HOME": str(home),
        }
        with self._log.open("w") as errors:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True, env=environment
            )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def wait_for_lines(self, count: int) -> None:
        """Wait until this many lines were printed: "started", then one for each batch."""
        self.wait_until(lambda: len(self.lines) >= count, f"{count} lines")

    def arm(self, place: str) -> None:
        """Let every process pause that reaches this place."""
        (self._folder / f"armed-{place}").touch()

    def pause_at(self, place: str) -> list[int]:
        """Arm a pause and wait until it is reached; returns the processes that reached it."""
        self.arm(place)
        reached = lambda: list(self._folder.glob(f"reached-{place}-*"))  # noqa: E731
        self.wait_until(reached, place)
        return [int(path.name.rpartition("-")[2]) for path in reached()]

    def disarm(self) -> None:
        """Let all remaining processes continue."""
        for path in [*self._folder.glob("armed-*"), *self._folder.glob("reached-*")]:
            path.unlink(missing_ok=True)

    def wait_until(self, there: Any, what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not there():
            assert self.process.poll() is None, f"the job ended by itself: {self.errors()}"
            assert time.monotonic() < deadline, (
                f"no {what} within {WAIT_SECONDS} s; printed {self.lines}: {self.errors()}"
            )
            time.sleep(0.05)

    def signal(self, number: int) -> None:
        """Send a signal to the driver and its JVM. The Python workers are in another process group and notice the end by their sockets."""
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def errors(self) -> str:
        return self._log.read_text()[-5000:]

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(iter(self.process.stdout.readline, ""))  # grows while it is read


def kill_at(job: Job, place: str, chance: random.Random) -> None:
    """Start the job, let it run some batches, and kill it at the pause, or after a random time."""
    with job.start() as running:
        running.wait_for_lines(chance.randint(2, 4))
        if place == "anywhere":
            time.sleep(chance.uniform(0, 3))
        else:
            running.pause_at(place)
        assert running.process.poll() is None, running.errors()
        running.kill()
        running.disarm()


def home_in(folder: Path, python: str) -> Path:
    """A separate Spark home: the workers of local-cluster write into it."""
    home = folder / "spark"
    if not home.exists():
        home.mkdir()
        older = Path(python).parents[1].glob("lib/python*/site-packages/pyspark")
        package = Path(pyspark.__file__).parent if python == sys.executable else next(older)
        link_entries(package, home)
    return home


def producing(stream: Any) -> AbstractContextManager[None]:
    """About 200 records a second, until the block ends."""
    return repeated(lambda: stream.put(20), 0.1)


def rounds() -> int:
    """How many kills: KILL_ROUNDS, four by default."""
    return int(os.environ.get("KILL_ROUNDS", "4"))


def seeded() -> random.Random:
    """A random generator seeded by KILL_SEED, which is printed."""
    seed = int(os.environ.get("KILL_SEED", random.randrange(10**6)))
    print(f"KILL_SEED={seed}")
    return random.Random(seed)


def kill_executor_of(worker: int) -> None:
    """The JVM above a Python worker and its daemon."""
    daemon = parent_of(worker)
    os.kill(parent_of(daemon), signal.SIGKILL)


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def check_once(job: Job, spark: Any, stream: Any) -> None:
    """Assert that every output has every record of the stream once."""
    outputs = job.numbers(spark)
    assert outputs
    for read in outputs:
        assert len(read) == len(set(read)), "duplicates"
        assert read == list(range(stream.count)), "missing"
