"""Faults of a job's processes (kill, suspend, drain), and random faults of the endpoint."""

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

from processes.job_files import children_of, start_job

MOST_PLANNED = 4
"""Calls of one operation that are planned to fail. While a job starts slowly, or waits between its retries, fewer calls fail than are
planned, and without a limit they would pile up to an outage that lasts as long as the test."""
FAULTS = (
    lambda faults: fail(faults, "GetRecords", "ProvisionedThroughputExceededException", 2),
    lambda faults: fail(faults, "GetRecords", "InternalFailure", 2, status=500),
    lambda faults: faults.planned("GetRecords") < MOST_PLANNED and faults.drop_next("GetRecords", 2),
    lambda faults: faults.planned("GetShardIterator") < MOST_PLANNED and faults.drop_next("GetShardIterator"),
    lambda faults: faults.planned("ListShards") or fail(faults, "ListShards", "LimitExceededException"),
    lambda faults: faults.expire_iterators(),
)


def fail(faults, operation: str, code: str, count: int = 1, status: int = 400) -> None:
    if faults.planned(operation) < MOST_PLANNED:
        faults.fail_next(operation, code, count, status=status)


class FaultInjectedJob:
    """Owns the processes of a job that is stopped by faults and started again, and its suspended processes."""

    def __init__(self, path: Path, parallelisms: tuple[int, ...], random_source: random.Random) -> None:
        """Each start picks one of the parallelisms."""
        self._path = path
        self._parallelisms = parallelisms
        self._random = random_source
        self._suspended: list[int] = []
        self.restarts = 0
        self.start()

    def start(self) -> None:
        self.process = start_job(self._path, "--parallelism", str(self._random.choice(self._parallelisms)))

    def workers(self) -> list[int]:
        """The processes that read: with a parallelism of 1 the job is one process."""
        if self._parallelisms == (1,):
            return [self.process.pid]
        deadline = time.monotonic() + 60
        while not (found := children_of(self.process.pid)) and time.monotonic() < deadline:
            self.keep_running()
            time.sleep(0.05)
        return found

    def keep_running(self) -> None:
        """Start the job again if it has failed (more faults in a row than it retries), as a supervisor in production would."""
        code = self.process.poll()
        assert code in (None, 1), f"the job ended with {code}"
        if code == 1:
            self.restarts += 1
            self.start()

    # --- faults: each leaves a running job -------------------------------------------------------------------------------------------

    def kill_worker(self) -> None:
        """The job must end with exit code 1."""
        kill(self._random.choice(self.workers()))
        code = self.process.wait(timeout=60)
        assert code == 1, f"the supervisor ended with {code}"
        self.start()

    def kill_supervisor(self) -> None:
        """Its workers drain while those of the next job start."""
        kill(self.process.pid)
        self.process.wait()
        self.start()

    def kill_everything(self) -> None:
        for pid in [self.process.pid, *self.workers()]:
            kill(pid)
        self.process.wait()
        self.start()

    def suspend_and_replace(self) -> None:
        """Suspend a worker and start the job again; `wake` resumes the suspended process."""
        suspended, *others = self._random.sample(self.workers(), len(self.workers()))
        kill(suspended, signal.SIGSTOP)
        if suspended != self.process.pid:
            for pid in [self.process.pid, *others]:
                kill(pid)
            self.process.wait()
        self._suspended.append(suspended)
        self.start()

    def drain(self) -> None:
        assert self.workers(), "no worker has started"
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        assert code == 0, f"a drained job ended with {code}"
        self.start()

    # ---------------------------------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Resume the replaced processes and wait until they end: they are fenced and must exit."""
        for pid in self._suspended:
            kill(pid, signal.SIGCONT)
        deadline = time.monotonic() + 60
        while any(is_alive(pid) for pid in self._suspended):
            assert time.monotonic() < deadline, "a replaced process is still running"
            time.sleep(0.05)
        self._suspended.clear()

    def end(self) -> None:
        for pid in [self.process.pid, *children_of(self.process.pid), *self._suspended]:
            kill(pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # The second is raised if the process ends while its file is read.
        return False
