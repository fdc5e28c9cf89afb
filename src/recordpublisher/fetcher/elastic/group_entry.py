"""Checks, before a process joins its group, that it runs the same job as the other processes, or that there are none (E10)."""

import logging
import secrets
from dataclasses import replace

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.password_masking import mask_passwords

from ..checkpoints.assignment_kinds import ANOTHER_PLACE, refuse_other_job
from ..committing_sink import entries_of
from ..conditional_store import ConditionalStore, ConflictError, pause
from ..leases.documents.group_job import GroupJob
from ..leases.documents.group_store import MAX_ATTEMPTS, GroupStore
from ..leases.lease_settings import LeaseSettings
from ..shards.stream_list import StreamList
from ..sink import Sink

log = logging.getLogger("recordpublisher.group")


def job_of(streams: StreamList, sink: Sink, name: str | None = None) -> GroupJob:
    """Return what this process reads and where it writes. `name`: the name of the job."""
    names = tuple(sorted(streams)) if streams.is_fixed else None
    return GroupJob(mask_passwords(sink.destination()), names, entries_of(sink) is not None, name)


async def begin_job(store: ConditionalStore, job: GroupJob, settings: LeaseSettings, clock: Clock) -> None:
    """Make `job` the job of the group, if the group has another one and no process is in it. Do nothing if there is no group.

    Silent workers are waited for, for the lease duration.

    Raises: StateError if a worker is running, which it names, or if the group has a job with another name; StoreUnavailableError if the
    store cannot be reached now.
    """
    from ..leases.group_observer import (
        LiveWorkerError,
        seal_all_silent,
    )  # a process that runs alone needs `job_of` only

    for attempt in range(MAX_ATTEMPTS):
        found = await GroupStore(store).read_table()
        if found is not None and found.document.job is not None:
            refuse_other_job(store.place, found.document.job.name, job.name)
        difference = None if found is None else job.contradiction(found.document.job)
        if found is None or difference is None:
            return
        try:
            await seal_all_silent(GroupStore(store, settings.interval), settings, clock)
        except LiveWorkerError as error:
            raise StateError(
                f"the group of this job has other settings: {difference}. Worker {error.worker} of the group in {store.place} sends "
                f"heartbeats: stop all its processes first. Another job needs {ANOTHER_PLACE}"
            ) from error
        writer, version = f"start-{secrets.token_hex(8)}", found.document.version + 1
        try:
            await GroupStore(store).write_table(
                replace(found.document, version=version, writer=writer, job=job), found.version
            )
        except ConflictError:  # another process has joined in the meantime
            await pause(attempt)
        else:
            log.info("nobody is in the group in %s, which did another job before: %s", store.place, difference)
            return
    raise StateError(f"the group in {store.place} is begun again and again by processes with other settings")
