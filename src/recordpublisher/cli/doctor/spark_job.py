"""Checks a query on Spark: its options, its streams, and the place where its tasks store claims (what each task has read)."""

from recordpublisher.plugins.spark.options.checks import check_job
from recordpublisher.plugins.spark.options.other_connectors import collected_warnings
from recordpublisher.plugins.spark.options.spark_options import SparkOptions
from recordpublisher.plugins.stores.by_location import conditional_store_of, missing_folder
from recordpublisher.plugins.stores.spark_read_claims import queries_of
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.properties.properties import Properties

from .examination import all_findings
from .findings import Finding, Verdict, examine, failed_finding
from .streams import stream_use_of


async def spark_job_findings(given: Properties) -> list[Finding]:
    """Return every finding about a query on Spark, in the order in which they are printed."""
    try:
        with collected_warnings() as warnings:
            options = SparkOptions.parse(given)
            check_job(options)
    except RecordPublisherError as error:
        return [failed_finding("options", error)]
    verdict = Verdict.PROBLEM if warnings else Verdict.OK
    of_options = Finding("options", verdict, "; ".join(warnings) or "valid")
    uses = {stream: stream_use_of(options.properties, stream) for stream in options.streams}
    of_streams = await all_findings(options.properties, uses, has_job=False)
    return [of_options, *of_streams, await examine("claims", lambda: _claims(options))]


async def _claims(options: SparkOptions) -> str:
    """Check that the place where tasks store claims can be read. Return in words how many queries have claims there."""
    place = options.metadata_location
    store = conditional_store_of(place, options.metadata_key, options.properties, is_for_claims=True)
    if (folder := missing_folder(place)) is not None:
        return f"{folder} will be created"
    try:
        queries = queries_of(await store.list_names(""))
    finally:
        await store.close()
    return f"{place} is reachable; queries with claims (what their tasks have read) in it: {len(queries)}"
