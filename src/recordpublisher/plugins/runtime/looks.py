"""The properties of a read that must not act as the job."""

from recordpublisher.publishers.properties.groups.job import JOB_WORKERS, ON_BAD_RECORD, STATE_URI
from recordpublisher.publishers.properties.groups.reading import RECORD_PUBLISHER
from recordpublisher.publishers.properties.properties import Properties


def as_look(job: Properties) -> Properties:
    """Return the properties of a job for a reader that must not act as the job.

    They have no place of positions, group of workers or dead letters (bad records are skipped). The reader also polls instead of using the
    job's consumer of enhanced fan-out: its subscriptions would end the job's subscriptions, and its end could deregister the consumer.
    """
    is_kept = job.value(ON_BAD_RECORD) != "DEAD_LETTER"
    polled = (RECORD_PUBLISHER,) if job.value(RECORD_PUBLISHER) == "EFO" else ()
    look: dict[str, str | None] = dict.fromkeys((each.key for each in (STATE_URI, JOB_WORKERS, *polled)), None)
    return job.merged(look if is_kept else {**look, ON_BAD_RECORD.key: "SKIP"})
