"""What can happen to the processes of a job, and the endpoint's random misbehaviour beside it."""

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

from processes.job_files import children_of, start_job

FAULTS = (
    lambda faults: faults.fail_next("GetRecords", "ProvisionedThroughputExceededException", 2),
    lambda faults: faults.fail_next("GetRecords", "InternalFailure", 2, status=500),
    lambda faults: faults.drop_next("GetRecords", 2),
    lambda faults: faults.drop_next("GetShardIterator"),
    lambda faults: faults.fail_next("ListShards", "LimitExceededException"),
    lambda faults: faults.expire_iterators(),
)


class JobUnderFire:
    """Owns the processes of a job that is struck and started again, and those that were left suspended."""

    def __init__(self, path: Path, parallelisms: tuple[int, ...], chance: random.Random) -> None:
        """Each start has one of the parallelisms."""
        self._path = path
        self._parallelisms = parallelisms
        self._chance = chance
        self._suspended: list[int] = []
        self.restarts = 0
        self.start()

    def start(self) -> None:
        self.process = start_job(self._path, "--parallelism", str(self._chance.choice(self._parallelisms)))

    def subtasks(self) -> list[int]:
        deadline = time.monotonic() + 60
        while not (found := children_of(self.process.pid)) and time.monotonic() < deadline:
            self.keep_running()
            time.sleep(0.05)
        return found

    def keep_running(self) -> None:
        """What the operator's machinery does: a job that gave up (more faults in a row than it retries) is started again."""
        code = self.process.poll()
        assert code in (None, 1), f"the job ended with {code}"
        if code == 1:
            self.restarts += 1
            self.start()

    # --- strikes: each leaves a running job ------------------------------------------------------------------------------------------

    def kill_subtask(self) -> None:
        """The job goes down with it, and says so."""
        kill(self._chance.choice(self.subtasks()))
        code = self.process.wait(timeout=60)
        assert code == 1, f"the supervisor ended with {code}"
        self.start()

    def kill_supervisor(self) -> None:
        """Its subtasks drain, while their successors start."""
        kill(self.process.pid)
        self.process.wait()
        self.start()

    def kill_everything(self) -> None:
        for pid in [self.process.pid, *self.subtasks()]:
            kill(pid)
        self.process.wait()
        self.start()

    def suspend_and_replace(self) -> None:
        """A subtask sleeps, is replaced, and will be woken by `wake`."""
        sleeper, *others = self._chance.sample(self.subtasks(), len(self.subtasks()))
        kill(sleeper, signal.SIGSTOP)
        for pid in [self.process.pid, *others]:
            kill(pid)
        self.process.wait()
        self._suspended.append(sleeper)
        self.start()

    def drain(self) -> None:
        assert self.subtasks(), "no subtask has started"
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        assert code == 0, f"a drained job ended with {code}"
        self.start()

    # ---------------------------------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Let those that were replaced go on, and wait for their end: they can only find out and go."""
        for pid in self._suspended:
            kill(pid, signal.SIGCONT)
        deadline = time.monotonic() + 60
        while any(is_alive(pid) for pid in self._suspended):
            assert time.monotonic() < deadline, "a process that was replaced lives on"
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
    """Neither gone nor a zombie that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
