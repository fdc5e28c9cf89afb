"""The demo's Spark job, as a user would write it: it reads aligned in event time, and writes Parquet and a windowed aggregate.

It is a process of its own, so that it can be killed and started again. It prints the progress of each micro-batch, and ends when stdin gets
`stop`.
"""

import argparse
import json
import select
import sys
from pathlib import Path
from typing import Any

FLIGHT_SCHEMA = "id LONG, scheduled LONG, carrier STRING, flight INT, origin STRING, dest STRING, dep_delay INT"
LOOKAHEAD_DAYS = 40
OUT_OF_ORDERNESS_MS = 3_600_000
DAY_MS = 86_400_000


def main() -> None:
    """Run both queries until a line arrives on stdin."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--endpoint", "--stream", "--publisher", "--folder"):
        parser.add_argument(name, required=True)
    arguments = parser.parse_args()
    folder = Path(arguments.folder)
    session = _session(folder)
    queries = [_flights(session, arguments, folder), _departures(session, arguments, folder)]
    _print_progress(queries)
    for query in queries:
        query.stop()
    session.stop()


def _session(folder: Path) -> Any:
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.local.dir": str(folder / "spark"),
    }
    builder = SparkSession.builder.master("local[4]").appName("flights")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _read(session: Any, arguments: argparse.Namespace, name: str) -> Any:
    """Return the stream as a DataFrame for the query `name`. One property selects the publisher."""
    from pyspark.sql import functions as f

    folder = Path(arguments.folder)
    source = session.readStream.format("kinesis").options(
        **{
            "stream": arguments.stream,
            "metadataLocation": str(folder / f"claims-{name}"),
            "maxTasks": "2",
            "aws.region": "us-east-1",
            "aws.endpoint": arguments.endpoint,
            "aws.credentials.provider.basic.accesskeyid": "demo",
            "aws.credentials.provider.basic.secretkey": "demo",
            "flink.stream.recordpublisher": arguments.publisher,
            "flink.stream.efo.consumername": f"demo-{name}",
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.watermark.timestamp.field": "scheduled",
            "flink.watermark.outoforderness.millis": str(OUT_OF_ORDERNESS_MS),
            "flink.watermark.lookahead.millis": str(LOOKAHEAD_DAYS * DAY_MS),
            "flink.shard.idle.interval": "4000",
        }
    )
    document = f.from_json(f.col("data").cast("string"), FLIGHT_SCHEMA).alias("document")
    return source.load().select("shardId", "sequenceNumber", "eventTime", document).select("*", "document.*")


def _flights(session: Any, arguments: argparse.Namespace, folder: Path) -> Any:
    """Start the query that writes every flight, exactly once, as Parquet."""
    rows = _read(session, arguments, "flights").drop("document")
    writer = rows.writeStream.queryName("flights").format("parquet").option("path", str(folder / "flights"))
    return writer.option("checkpointLocation", str(folder / "checkpoint-flights")).start()


def _departures(session: Any, arguments: argparse.Namespace, folder: Path) -> Any:
    """Start the query that counts the departures by carrier and week of event time. It writes all counts again after each batch."""
    from pyspark.sql import functions as f

    rows = _read(session, arguments, "departures")
    counts = rows.groupBy(f.window("eventTime", "7 days"), "carrier").agg(f.count("*").alias("departures"))

    def keep(frame: Any, batch: int) -> None:
        frame.write.mode("overwrite").parquet(str(folder / "departures" / f"batch={batch}"))

    writer = counts.writeStream.queryName("departures").outputMode("complete").foreachBatch(keep)
    return writer.option("checkpointLocation", str(folder / "checkpoint-departures")).start()


def _print_progress(queries: list[Any]) -> None:
    """Print every progress report until a line arrives on stdin, or stdin is closed. Raises: the error of a query that has failed."""
    seen = dict.fromkeys((query.name for query in queries), -1)
    while not select.select([sys.stdin], [], [], 0.25)[0]:
        for query in queries:
            if query.exception() is not None:
                raise query.exception()
            for progress in query.recentProgress:
                if progress.batchId > seen[query.name]:
                    seen[query.name] = progress.batchId
                    print(_one_line(progress), flush=True)  # noqa: T201 - stdout is the pipe to the runner


def _one_line(progress: Any) -> str:
    """Return a progress report as one JSON line. Its offsets, which Spark reports as texts, become JSON objects."""
    report = json.loads(progress.json)
    for source in report["sources"]:
        for name in ("startOffset", "endOffset", "latestOffset"):
            if isinstance(source.get(name), str):
                source[name] = json.loads(source[name])
    return json.dumps(report)


if __name__ == "__main__":
    main()
