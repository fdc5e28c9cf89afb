"""Keyword arguments for properties, with types for editors. Written by `make docs` from the table of properties."""

from datetime import datetime, timedelta
from typing import Literal, TypedDict


class ReadSettings(TypedDict, total=False):
    """Keyword arguments of `read_arrow`, `read_polars` and `read_pandas`, which take the start as an argument of their own."""

    region: str
    """`aws.region`: The AWS region of streams given by name. Not set: the region in the ARNs or in the environment."""
    endpoint: str
    """`aws.endpoint`: An endpoint to call instead of the region's own."""
    credentials_provider: Literal["AUTO", "ENV_VAR", "PROFILE", "BASIC", "ASSUME_ROLE", "WEB_IDENTITY_TOKEN"]
    """`aws.credentials.provider`: Credentials provider; BASIC when both basic keys are set, otherwise AUTO (the SDK's chain)."""
    credentials_provider_basic_accesskeyid: str
    """`aws.credentials.provider.basic.accesskeyid`: Access key id for BASIC."""
    credentials_provider_basic_secretkey: str
    """`aws.credentials.provider.basic.secretkey`: Secret key for BASIC."""
    credentials_provider_basic_sessiontoken: str
    """`aws.credentials.provider.basic.sessiontoken`: Session token for BASIC."""
    credentials_provider_profile_name: str
    """`aws.credentials.provider.profile.name`: Profile for PROFILE."""
    credentials_provider_profile_path: str
    """`aws.credentials.provider.profile.path`: Credentials file for PROFILE."""
    credentials_provider_role_arn: str
    """`aws.credentials.provider.role.arn`: Role for ASSUME_ROLE and WEB_IDENTITY_TOKEN."""
    credentials_provider_role_sessionname: str
    """`aws.credentials.provider.role.sessionname`: Session name of the role."""
    credentials_provider_role_externalid: str
    """`aws.credentials.provider.role.externalid`: External id of the role."""
    credentials_provider_role_stsendpoint: str
    """`aws.credentials.provider.role.stsendpoint`: An STS endpoint to call instead of the default one."""
    credentials_provider_webidentitytoken_file: str
    """`aws.credentials.provider.webidentitytoken.file`: Token file for WEB_IDENTITY_TOKEN."""
    request_timeout: float | str | timedelta
    """`aws.request.timeout`: Deadline of one call, except for subscriptions. A number is in seconds."""
    http_client: Literal["OWN", "SDK"]
    """`aws.http.client`: HTTP client of frequent calls: OWN, plain HTTP/1.1 at a fraction of the CPU; or SDK, with its hooks. Through a
    proxy always SDK."""
    max_outage: float | str | timedelta
    """`flink.job.max.outage`: For how long calls of the job are retried while a service is unreachable: reads, listings, subscriptions,
    state stores, sinks and acknowledgements. Spark's option is `maxOutage`. 30 s for reads with an end (`stream`, `consume` with a
    bound, frames) and for commands other than `run` and `put`. Retry properties of Flink that are set take precedence for their call.
    A number is in seconds."""
    job_max_outage: float | str | timedelta
    """The same as `max_outage`."""
    job_name: str
    """`flink.job.name`: Name of the job: separates jobs that share a database. Elsewhere each job has a `flink.state.uri` of its own."""
    job_workers: Literal["ALONE", "GROUP"]
    """`flink.job.workers`: ALONE: one process reads all shards; a later start replaces it. GROUP: processes with the same
    flink.state.uri (in a database: and flink.job.name) share the shards; any may join, leave or fail."""
    job_drain_timeout: float | str | timedelta
    """`flink.job.drain.timeout`: For how long a job that is stopped waits for the calls of a `map` handler, counted from the stop (in a
    group up to 5 s later), or for puts of the Kinesis sink that all fail; what it has not handled then is read again by the next
    start. If no positions are stored, or if `max_time` has ended the run, each call that returns starts this time again. A job that
    ends, even by an error, waits as long for a publisher, for `close` of a plugin and, if it runs alone, for the store of its last
    checkpoint. A queue job that is stopped waits as long for the target of its last flush. A producer that is closed in an outage
    gives up its records when none was acknowledged for as long. `recordpublisher run` stops workers that drain for 20 s longer after
    another one has failed. A number is in seconds."""
    publisher: str
    """`flink.stream.recordpublisher`: The publisher that reads the shards: POLLING, EFO, QUEUE, DYNAMODB_STREAMS, ARCHIVE, or that of a
    plugin. Type checkers accept any text."""
    stream_recordpublisher: str
    """The same as `publisher`."""
    shard_getrecords_maxrecordcount: int
    """`flink.shard.getrecords.maxrecordcount`: Most records that one GetRecords call requests."""
    shard_getrecords_intervalmillis: int | str | timedelta
    """`flink.shard.getrecords.intervalmillis`: Interval from the start of one read to the start of the next. A number is in ms."""
    shard_getrecords_tip_intervalmillis: int | str | timedelta
    """`flink.shard.getrecords.tip.intervalmillis`: Interval after an empty read at the shard's tip, until a record arrives. Not set:
    flink.shard.getrecords.intervalmillis. A number is in ms."""
    shard_adaptivereads: bool
    """`flink.shard.adaptivereads`: Set the limit of each read from the mean record size, to use the 2 MiB/s of a shard."""
    consumer_name: str
    """`flink.stream.efo.consumername`: Name of the stream consumer, unique for each independent job; required for LAZY and EAGER."""
    stream_efo_consumername: str
    """The same as `consumer_name`."""
    stream_efo_registration: Literal["LAZY", "EAGER", "NONE"]
    """`flink.stream.efo.registration`: When the consumer is registered: LAZY at start-up, EAGER at construction, NONE not by this job."""
    stream_efo_tags: str
    """`flink.stream.efo.tags`: Tags of a consumer that this job registers: key=value, separated by commas."""
    stream_registerstreamconsumer_timeout: float | str | timedelta
    """`flink.stream.registerstreamconsumer.timeout`: How long to wait for the consumer to become ACTIVE. A number is in seconds."""
    stream_deregisterstreamconsumer_timeout: float | str | timedelta
    """`flink.stream.deregisterstreamconsumer.timeout`: How long to wait for a deregistration. A number is in seconds."""
    shard_subscribetoshard_timeout: float | str | timedelta
    """`flink.shard.subscribetoshard.timeout`: Deadline for opening a subscription. A number is in seconds."""
    http_protocol_version: Literal["HTTP1_1", "HTTP2"]
    """`aws.http.protocol.version`: Protocol of SubscribeToShard: HTTP2 has many subscriptions on a connection (extra http2)."""
    stream_efo_deregister: Literal["LAST_OUT", "NEVER"]
    """`flink.stream.efo.deregister`: When a LAZY or EAGER consumer is deregistered: LAST_OUT by the last worker of a process (in a
    group: of the last process), unless a run failed; NEVER only by command. A query of Spark never does."""
    queue: str
    """`flink.queue.name`: The queue of the stream, as a name or an ARN; the publisher QUEUE needs it."""
    queue_name: str
    """The same as `queue`."""
    queue_create: Literal["LAZY", "EAGER", "NONE"]
    """`flink.queue.create`: When a queue that does not exist is created: LAZY at start-up, EAGER at construction, NONE not by this job.
    It is never deleted."""
    queue_visibility_timeout: float | str | timedelta
    """`flink.queue.visibility.timeout`: How long a received record is hidden from others; prolonged while it is worked on. A number is
    in seconds."""
    queue_receivers: int
    """`flink.queue.receivers`: The most receivers of a process, each with a call at a time; a back-log starts more than one."""
    queue_wait: float | str | timedelta
    """`flink.queue.wait`: How long a receive waits for records; a stop waits for it. A number is in seconds."""
    queue_duplicates: Literal["COUNT", "DROP"]
    """`flink.queue.duplicates`: What happens to a record that this process has acknowledged and receives again: it is counted, and
    passed on or dropped."""
    archive_uri: str
    """`flink.archive.uri`: The archive that the publisher ARCHIVE reads, which a job with `flink.sink.archive` wrote: the folder or
    object location of the sink jsonl or parquet, delta: and the location of a table, or iceberg:namespace.table with the catalogue of
    `flink.sink.iceberg.catalog.`."""
    archive_live: str
    """`flink.archive.live`: The publisher that reads what comes after the archive: POLLING, EFO or that of a plugin. NONE ends the job
    with the archive, and needs one process: flink.job.workers=ALONE."""
    archive_unproven: bool
    """`flink.archive.unproven`: Whether files are read that were written without `flink.sink.archive`, and rows of tables of which some
    were deleted or changed. Records that are missing between them are not found."""
    state_endpoint: str
    """`flink.state.endpoint`: An endpoint of S3 or DynamoDB to call instead of the region's own."""
    shard_discovery_intervalmillis: int | str | timedelta
    """`flink.shard.discovery.intervalmillis`: Interval of the discovery of shards, and of streams that a file or a function lists; -1:
    never. A number is in ms."""
    lease_duration: float | str | timedelta
    """`flink.lease.duration`: If a process of a group sends no heartbeat for this long, other processes acquire its shards. A number is
    in seconds."""
    state_dataloss: Literal["FAIL", "CONTINUE"]
    """`flink.state.dataloss`: When records passed retention unread: FAIL and name the gap, or CONTINUE and count it."""
    state_uri: str
    """`flink.state.uri`: Where checkpoints are kept: a path or a registered store's URI."""
    state_checkpoint_interval: float | str | timedelta
    """`flink.state.checkpoint.interval`: Interval of checkpoints, if a state store is set; -1: only at a stop. A number is in seconds."""
    deserializer_compression: Literal["NONE", "GZIP", "ZSTD", "SNAPPY"]
    """`flink.deserializer.compression`: How payloads are compressed. ZSTD and SNAPPY (block format) need the extra `compression`."""
    deserializer_decompressed_max_bytes: int | str
    """`flink.deserializer.decompressed.max.bytes`: The largest decompressed payload; a larger one is a bad record. A number is in bytes."""
    watermark_timestamp_field: str
    """`flink.watermark.timestamp.field`: Field with the event time, epoch ms or ISO-8601: at the top of JSON payloads, else of decoded
    values. Not set: arrival time."""
    watermark_outoforderness_millis: int | str | timedelta
    """`flink.watermark.outoforderness.millis`: How far the watermark is behind the event times: the out-of-orderness within a shard. A
    number is in ms."""
    watermark_future_limit: float | str | timedelta
    """`flink.watermark.future.limit`: For watermarks, an event time that is further than this after its record's arrival counts as the
    arrival time; -1: off. A number is in seconds."""
    watermark_strategy: str
    """`flink.watermark.strategy`: How watermarks follow from event times: BOUNDED, MONOTONOUS (no disorder), ARRIVAL (from arrival
    times) or a plugin's name."""
    watermark_lookahead_millis: int | str | timedelta
    """`flink.watermark.lookahead.millis`: Event-time alignment: how far a record's watermark may be ahead of the global one. Not set:
    off; 0 is allowed. A number is in ms."""
    watermark_alignment_max_lag: float | str | timedelta
    """`flink.watermark.alignment.max.lag`: Watermarks do not wait for a shard whose next record is further than this behind the most
    advanced shard. Not set: off. A number is in seconds."""
    shard_idle_interval: float | str | timedelta
    """`flink.shard.idle.interval`: Time without records after which a shard is idle; -1: watermarks wait for every shard. A number is in
    seconds."""
    watermark_sync_interval: float | str | timedelta
    """`flink.watermark.sync.interval`: Interval of refreshes of the global watermark. A number is in seconds."""
    watermark_emit_interval: float | str | timedelta
    """`flink.watermark.emit.interval`: Shortest interval between two watermarks that a sink gets. A number is in seconds."""
    watermark_tracker_timeout: float | str | timedelta
    """`flink.watermark.tracker.timeout`: A worker of a group whose heartbeats have stopped no longer holds the global watermark back
    after this time. A number is in seconds."""
    deserializer_schema: str
    """`flink.deserializer.schema`: The fields of objects in records, as columns (`id BIGINT, amount DECIMAL(12, 2), address
    STRUCT<country: STRING>`), or the path of a file: `.avsc`, or `.json` (JSON Schema), or its content. They are checked, and are
    columns as those of a type. INFER: the sinks delta, iceberg, sql, parquet and jsonl add columns as the data shows them."""
    deserializer_avro_schema: str
    """`flink.deserializer.avro.schema`: The Avro schema of the records, as JSON, or the path of its file (`.avsc`)."""
    deserializer_glue_endpoint: str
    """`flink.deserializer.glue.endpoint`: An endpoint of the Glue Schema Registry to call instead of the region's own, for example in a
    VPC."""
    deserializer_protobuf_message: str
    """`flink.deserializer.protobuf.message`: The full name of the Protobuf message in each record, for example `shop.Order`."""
    deserializer_protobuf_descriptor: str
    """`flink.deserializer.protobuf.descriptor`: Where the message is described: a file that `protoc --include_imports
    --descriptor_set_out=FILE` wrote, or the Python module that protoc generated, whose name ends in _pb2."""
    deserializer_error: Literal["FAIL", "SKIP", "DEAD_LETTER"]
    """`flink.deserializer.error`: What happens to a record that cannot be deserialized, or that the sink can never write: FAIL, SKIP and
    count, or DEAD_LETTER."""
    sink_map_on_failure: Literal["FAIL", "SKIP", "DEAD_LETTER"]
    """`flink.sink.map.on.failure`: After the last retry: FAIL the job, SKIP the record, or DEAD_LETTER, with
    `flink.deserializer.error=DEAD_LETTER`."""
    deadletter_sink: str
    """`flink.deadletter.sink`: The sink for records that cannot be used, with flink.deserializer.error=DEAD_LETTER."""
    worker_queue_bytes: int | str
    """`flink.worker.queue.bytes`: Memory budget of everything queued in a worker. A number is in bytes."""
    shard_queue_bytes: int | str
    """`flink.shard.queue.bytes`: Memory budget of one shard's queue. A number is in bytes."""
    shard_queue_records: int
    """`flink.shard.queue.records`: Records in one shard's queue."""
    shard_getrecords_maxretries: int
    """`flink.shard.getrecords.maxretries`: Failures of GetRecords in a row, without progress between them, before the job fails."""
    shard_getrecords_backoff_base: float | str | timedelta
    """`flink.shard.getrecords.backoff.base`: First back-off of GetRecords. A number is in seconds."""
    shard_getrecords_backoff_max: float | str | timedelta
    """`flink.shard.getrecords.backoff.max`: Largest back-off of GetRecords. A number is in seconds."""
    shard_getrecords_backoff_expconst: float
    """`flink.shard.getrecords.backoff.expconst`: Growth of the back-off of GetRecords."""
    shard_getiterator_maxretries: int
    """`flink.shard.getiterator.maxretries`: Failures of GetShardIterator in a row, without progress between them, before the job fails."""
    shard_getiterator_backoff_base: float | str | timedelta
    """`flink.shard.getiterator.backoff.base`: First back-off of GetShardIterator. A number is in seconds."""
    shard_getiterator_backoff_max: float | str | timedelta
    """`flink.shard.getiterator.backoff.max`: Largest back-off of GetShardIterator. A number is in seconds."""
    shard_getiterator_backoff_expconst: float
    """`flink.shard.getiterator.backoff.expconst`: Growth of the back-off of GetShardIterator."""
    list_shards_maxretries: int
    """`flink.list.shards.maxretries`: Failures of ListShards in a row, without progress between them, before the job fails."""
    list_shards_backoff_base: float | str | timedelta
    """`flink.list.shards.backoff.base`: First back-off of ListShards. A number is in seconds."""
    list_shards_backoff_max: float | str | timedelta
    """`flink.list.shards.backoff.max`: Largest back-off of ListShards. A number is in seconds."""
    list_shards_backoff_expconst: float
    """`flink.list.shards.backoff.expconst`: Growth of the back-off of ListShards."""
    stream_describe_maxretries: int
    """`flink.stream.describe.maxretries`: Failures of DescribeStreamSummary in a row, without progress between them, before the job
    fails."""
    stream_describe_backoff_base: float | str | timedelta
    """`flink.stream.describe.backoff.base`: First back-off of DescribeStreamSummary. A number is in seconds."""
    stream_describe_backoff_max: float | str | timedelta
    """`flink.stream.describe.backoff.max`: Largest back-off of DescribeStreamSummary. A number is in seconds."""
    stream_describe_backoff_expconst: float
    """`flink.stream.describe.backoff.expconst`: Growth of the back-off of DescribeStreamSummary."""
    stream_describestreamconsumer_maxretries: int
    """`flink.stream.describestreamconsumer.maxretries`: Failures of DescribeStreamConsumer in a row, without progress between them,
    before the job fails."""
    stream_describestreamconsumer_backoff_base: float | str | timedelta
    """`flink.stream.describestreamconsumer.backoff.base`: First back-off of DescribeStreamConsumer. A number is in seconds."""
    stream_describestreamconsumer_backoff_max: float | str | timedelta
    """`flink.stream.describestreamconsumer.backoff.max`: Largest back-off of DescribeStreamConsumer. A number is in seconds."""
    stream_describestreamconsumer_backoff_expconst: float
    """`flink.stream.describestreamconsumer.backoff.expconst`: Growth of the back-off of DescribeStreamConsumer."""
    stream_registerstreamconsumer_maxretries: int
    """`flink.stream.registerstreamconsumer.maxretries`: Failures of RegisterStreamConsumer in a row, without progress between them,
    before the job fails."""
    stream_registerstreamconsumer_backoff_base: float | str | timedelta
    """`flink.stream.registerstreamconsumer.backoff.base`: First back-off of RegisterStreamConsumer. A number is in seconds."""
    stream_registerstreamconsumer_backoff_max: float | str | timedelta
    """`flink.stream.registerstreamconsumer.backoff.max`: Largest back-off of RegisterStreamConsumer. A number is in seconds."""
    stream_registerstreamconsumer_backoff_expconst: float
    """`flink.stream.registerstreamconsumer.backoff.expconst`: Growth of the back-off of RegisterStreamConsumer."""
    stream_deregisterstreamconsumer_maxretries: int
    """`flink.stream.deregisterstreamconsumer.maxretries`: Failures of DeregisterStreamConsumer in a row, without progress between them,
    before the job fails."""
    stream_deregisterstreamconsumer_backoff_base: float | str | timedelta
    """`flink.stream.deregisterstreamconsumer.backoff.base`: First back-off of DeregisterStreamConsumer. A number is in seconds."""
    stream_deregisterstreamconsumer_backoff_max: float | str | timedelta
    """`flink.stream.deregisterstreamconsumer.backoff.max`: Largest back-off of DeregisterStreamConsumer. A number is in seconds."""
    stream_deregisterstreamconsumer_backoff_expconst: float
    """`flink.stream.deregisterstreamconsumer.backoff.expconst`: Growth of the back-off of DeregisterStreamConsumer."""
    shard_subscribetoshard_maxretries: int
    """`flink.shard.subscribetoshard.maxretries`: Failures of SubscribeToShard in a row, without progress between them, before the job
    fails."""
    shard_subscribetoshard_backoff_base: float | str | timedelta
    """`flink.shard.subscribetoshard.backoff.base`: First back-off of SubscribeToShard. A number is in seconds."""
    shard_subscribetoshard_backoff_max: float | str | timedelta
    """`flink.shard.subscribetoshard.backoff.max`: Largest back-off of SubscribeToShard. A number is in seconds."""
    shard_subscribetoshard_backoff_expconst: float
    """`flink.shard.subscribetoshard.backoff.expconst`: Growth of the back-off of SubscribeToShard."""
    sink_sql_uri: str
    """`flink.sink.sql.uri`: The database of the sql sink: postgresql://user@host/database or sqlite:////path/file.db."""
    sink_sql_table: str
    """`flink.sink.sql.table`: The table of the sql sink, with its schema if needed; created when it is missing."""
    sink_sql_columns: Literal["RECORD", "AUTO", "EVOLVE"]
    """`flink.sink.sql.columns`: A missing table gets the columns of a RECORD, or those of its fields where the payload has a type; with
    AUTO, those of the fields of the first batch, and a later field is an error; EVOLVE adds its column."""
    sink_sql_key: str
    """`flink.sink.sql.key`: The fields, separated by commas, of which the sql sink's table keeps the newest row, by sequence number."""
    sink_sql_delete: str
    """`flink.sink.sql.delete`: What deletes the row of a key: a boolean field that is true (deleted), or a field and its value (op=D)."""
    sink_buffer_bytes: int | str
    """`flink.sink.buffer.bytes`: Memory of records at which the sinks sql, jsonl and parquet request a checkpoint, and delta and iceberg
    write their files; at twice of it the job waits. Not set: 16 MiB for sql, 64 MiB for the others. A number is in bytes."""
    sink_callback_function: str
    """`flink.sink.callback.function`: The function of the callback sink, as module:function."""
    sink_map_function: str
    """`flink.sink.map.function`: The function of the map sink, as module:function."""
    sink_map_concurrency: int
    """`flink.sink.map.concurrency`: Calls of the function at a time."""
    sink_map_ordering: Literal["PER_KEY", "PER_SHARD", "NONE"]
    """`flink.sink.map.ordering`: Records that are handled one after the other: of one partition key, of one shard, or none."""
    sink_map_batch_size: int
    """`flink.sink.map.batch.size`: The most records of one call. Above 1 the function gets a list of records."""
    sink_map_batch_wait: float | str | timedelta
    """`flink.sink.map.batch.wait`: How long a list waits for more records. A number is in seconds."""
    sink_map_retries: int
    """`flink.sink.map.retries`: How often a record that failed is handled again, unless the function raised InvalidRecordError."""
    sink_map_retry_for: float | str | timedelta
    """`flink.sink.map.retry.for`: How long a record that failed is handled again, and at least `flink.sink.map.retries` times. Set the
    longest outage of the services that the function calls. A number is in seconds."""
    sink_map_timeout: float | str | timedelta
    """`flink.sink.map.timeout`: Time after which a call of an async function is cancelled, which counts as a failure; not set: never. A
    number is in seconds."""
    sink_map_max_age: float | str | timedelta
    """`flink.sink.map.max.age`: Records that arrived longer ago are not handled; not set: all are. A number is in seconds."""
    sink_map_max_bytes: int | str
    """`flink.sink.map.max.bytes`: Memory of records that are not handled yet, at which reading waits. A number is in bytes."""
    sink_jsonl_path: str
    """`flink.sink.jsonl.path`: Where the jsonl sink writes: a folder, s3://bucket/prefix, gs://bucket/prefix or
    abfss://container@account.dfs.core.windows.net/prefix."""
    sink_parquet_path: str
    """`flink.sink.parquet.path`: Where the parquet sink writes, as `flink.sink.jsonl.path`."""
    sink_archive: bool
    """`flink.sink.archive`: Whether the sinks jsonl, parquet, delta and iceberg write an archive: files of one shard with the records as
    they came, names that say in which range of the shard a file is complete, and a document of each shard with its parents, its hash
    range and its end. They refuse settings that change payloads. The publisher ARCHIVE reads it back."""
    sink_partitions: str
    """`flink.sink.partitions`: Files of parquet, delta and iceberg by time in UTC, by field or by a field in objects:
    dt={eventTime:%Y-%m-%d}/hour={eventTime:%H}/item={item}/country={address.country}. These are folders, or the partition columns of
    a table."""
    sink_parquet_compression: Literal["NONE", "SNAPPY", "LZ4", "GZIP", "BROTLI", "ZSTD"]
    """`flink.sink.parquet.compression`: Compression of Parquet files, including those of delta and iceberg. ZSTD takes half the space
    and twice the CPU of SNAPPY."""
    sink_parquet_row_group_bytes: int | str
    """`flink.sink.parquet.row.group.bytes`: Memory of the rows of a row group; less when those of all open files have
    flink.sink.buffer.bytes. A number is in bytes."""
    sink_parquet_sort: str
    """`flink.sink.parquet.sort`: Columns by which each row group is sorted, with commas between."""
    sink_parquet_columns: Literal["FIELDS", "RECORD"]
    """`flink.sink.parquet.columns`: FIELDS: those of the payload's type, then the metadata; without a type, and with RECORD, the
    metadata and `data`, and `value` as JSON text. Also for the sinks delta and iceberg."""
    sink_delta_uri: str
    """`flink.sink.delta.uri`: The table of the delta sink: a folder, s3://bucket/prefix, gs://bucket/prefix or
    abfss://container@account.dfs.core.windows.net/prefix. It is created if it is not there."""
    sink_iceberg_table: str
    """`flink.sink.iceberg.table`: The table of the iceberg sink, as namespace.table. It is created if it is not there. The job's
    positions are at flink.state.uri."""
    sink_table_columns: Literal["FIXED", "EVOLVE"]
    """`flink.sink.table.columns`: When the table of the sinks delta and iceberg lacks a column of the records: FIXED refuses to start,
    EVOLVE adds it."""
    sink_table_bytes: int | str
    """`flink.sink.table.bytes`: Rows, in bytes before compression, at which the sinks delta and iceberg request a commit. A number is in
    bytes."""
    sink_kinesis_stream: str
    """`flink.sink.kinesis.stream`: Stream that a Kinesis sink named by a property writes to; name or ARN."""
    sink_kinesis_queue_limit: int
    """`flink.sink.kinesis.queue.limit`: Unacknowledged records at which the writer waits; not set: as many as the bytes allow."""
    sink_kinesis_queue_bytes: int | str
    """`flink.sink.kinesis.queue.bytes`: Bytes of unacknowledged records, as held in memory, at which the writer waits; not set: 10 MB
    for each shard, 128 MiB at most. A number is in bytes."""
    sink_kinesis_ordering: Literal["NONE", "PER_KEY"]
    """`flink.sink.kinesis.ordering`: NONE, the order of PutRecords, or PER_KEY: one unacknowledged Kinesis record for each partition
    key."""
    sink_kinesis_failonerror: bool
    """`flink.sink.kinesis.failonerror`: Whether a record that cannot be put is an error, which ends a job; else it goes to the callback
    or the job's dead letters, counted and logged."""
    aggregation_enabled: bool
    """`AggregationEnabled`: Whether records are put in KPL aggregates."""
    aggregation_max_count: int
    """`AggregationMaxCount`: Most user records in one aggregate."""
    aggregation_max_size: int | str
    """`AggregationMaxSize`: Size of one aggregate. A number is in bytes."""
    collection_max_count: int
    """`CollectionMaxCount`: Kinesis records in one PutRecords call."""
    collection_max_size: int | str
    """`CollectionMaxSize`: Data and keys in one PutRecords call; a larger record is sent alone. A number is in bytes."""
    record_max_buffered_time: float | str | timedelta
    """`RecordMaxBufferedTime`: Linger: how long a record waits for others to fill a call or an aggregate. A number is in seconds."""
    rate_limit: int
    """`RateLimit`: Rate limit for each shard, in percent of its capacity (1,000 records and 1 MiB a second)."""
    max_connections: int
    """`MaxConnections`: PutRecords calls at a time."""
    metrics_exporters: str
    """`flink.metrics.exporters`: Where `recordpublisher run` and `rp.export_metrics` send metrics, comma-separated: prometheus (a page
    to scrape, with health), cloudwatch (log lines), opentelemetry (OTLP), or a plugin's names."""
    metrics_prometheus_address: str
    """`flink.metrics.prometheus.address`: host:port of the pages /metrics, /healthz and /readyz. Of a range, host:first-last, each
    process takes the first free port. Port 0: any free port."""
    metrics_interval: float | str | timedelta
    """`flink.metrics.interval`: How often cloudwatch and opentelemetry send. A number is in seconds."""
    metrics_cloudwatch_file: str
    """`flink.metrics.cloudwatch.file`: The file for lines in CloudWatch's embedded metric format; - is stdout."""
    metrics_cloudwatch_namespace: str
    """`flink.metrics.cloudwatch.namespace`: The namespace of the metrics in CloudWatch."""
    metrics_cloudwatch_shards: bool
    """`flink.metrics.cloudwatch.shards`: Whether the metrics of each shard are written too; CloudWatch bills each."""
    tracing_context_field: str
    """`flink.tracing.context.field`: The field of JSON payloads with the trace context (W3C's traceparent, or an object with it), where
    KinesisSink puts it."""
    tracing_context_function: str
    """`flink.tracing.context.function`: A function of a Record, as module:function, that returns its trace context: headers by name, or
    None."""
    tracing_spans: Literal["BATCH", "RECORD"]
    """`flink.tracing.spans`: The spans of a write or of a handler's list: one with links to the records' contexts, or also one for each
    record."""
    alarm_interval: float | str | timedelta
    """`flink.alarm.interval`: Alarm if a shard with new records emits none, or the global watermark does not rise, for this long; -1: no
    alarms. A number is in seconds."""
    deadletter_map_on_failure: Literal["FAIL", "SKIP", "DEAD_LETTER"]
    """`flink.deadletter.map.on.failure`: `flink.sink.map.on.failure` of the dead-letter sink."""
    deadletter_sql_uri: str
    """`flink.deadletter.sql.uri`: `flink.sink.sql.uri` of the dead-letter sink."""
    deadletter_sql_table: str
    """`flink.deadletter.sql.table`: `flink.sink.sql.table` of the dead-letter sink."""
    deadletter_sql_columns: Literal["RECORD", "AUTO", "EVOLVE"]
    """`flink.deadletter.sql.columns`: `flink.sink.sql.columns` of the dead-letter sink."""
    deadletter_sql_key: str
    """`flink.deadletter.sql.key`: `flink.sink.sql.key` of the dead-letter sink."""
    deadletter_sql_delete: str
    """`flink.deadletter.sql.delete`: `flink.sink.sql.delete` of the dead-letter sink."""
    deadletter_buffer_bytes: int | str
    """`flink.deadletter.buffer.bytes`: `flink.sink.buffer.bytes` of the dead-letter sink. A number is in bytes."""
    deadletter_callback_function: str
    """`flink.deadletter.callback.function`: `flink.sink.callback.function` of the dead-letter sink."""
    deadletter_map_function: str
    """`flink.deadletter.map.function`: `flink.sink.map.function` of the dead-letter sink."""
    deadletter_map_concurrency: int
    """`flink.deadletter.map.concurrency`: `flink.sink.map.concurrency` of the dead-letter sink."""
    deadletter_map_ordering: Literal["PER_KEY", "PER_SHARD", "NONE"]
    """`flink.deadletter.map.ordering`: `flink.sink.map.ordering` of the dead-letter sink."""
    deadletter_map_batch_size: int
    """`flink.deadletter.map.batch.size`: `flink.sink.map.batch.size` of the dead-letter sink."""
    deadletter_map_batch_wait: float | str | timedelta
    """`flink.deadletter.map.batch.wait`: `flink.sink.map.batch.wait` of the dead-letter sink. A number is in seconds."""
    deadletter_map_retries: int
    """`flink.deadletter.map.retries`: `flink.sink.map.retries` of the dead-letter sink."""
    deadletter_map_retry_for: float | str | timedelta
    """`flink.deadletter.map.retry.for`: `flink.sink.map.retry.for` of the dead-letter sink. A number is in seconds."""
    deadletter_map_timeout: float | str | timedelta
    """`flink.deadletter.map.timeout`: `flink.sink.map.timeout` of the dead-letter sink. A number is in seconds."""
    deadletter_map_max_age: float | str | timedelta
    """`flink.deadletter.map.max.age`: `flink.sink.map.max.age` of the dead-letter sink. A number is in seconds."""
    deadletter_map_max_bytes: int | str
    """`flink.deadletter.map.max.bytes`: `flink.sink.map.max.bytes` of the dead-letter sink. A number is in bytes."""
    deadletter_jsonl_path: str
    """`flink.deadletter.jsonl.path`: `flink.sink.jsonl.path` of the dead-letter sink."""
    deadletter_parquet_path: str
    """`flink.deadletter.parquet.path`: `flink.sink.parquet.path` of the dead-letter sink."""
    deadletter_archive: bool
    """`flink.deadletter.archive`: `flink.sink.archive` of the dead-letter sink."""
    deadletter_partitions: str
    """`flink.deadletter.partitions`: `flink.sink.partitions` of the dead-letter sink."""
    deadletter_parquet_compression: Literal["NONE", "SNAPPY", "LZ4", "GZIP", "BROTLI", "ZSTD"]
    """`flink.deadletter.parquet.compression`: `flink.sink.parquet.compression` of the dead-letter sink."""
    deadletter_parquet_row_group_bytes: int | str
    """`flink.deadletter.parquet.row.group.bytes`: `flink.sink.parquet.row.group.bytes` of the dead-letter sink. A number is in bytes."""
    deadletter_parquet_sort: str
    """`flink.deadletter.parquet.sort`: `flink.sink.parquet.sort` of the dead-letter sink."""
    deadletter_parquet_columns: Literal["FIELDS", "RECORD"]
    """`flink.deadletter.parquet.columns`: `flink.sink.parquet.columns` of the dead-letter sink."""
    deadletter_delta_uri: str
    """`flink.deadletter.delta.uri`: `flink.sink.delta.uri` of the dead-letter sink."""
    deadletter_iceberg_table: str
    """`flink.deadletter.iceberg.table`: `flink.sink.iceberg.table` of the dead-letter sink."""
    deadletter_table_columns: Literal["FIXED", "EVOLVE"]
    """`flink.deadletter.table.columns`: `flink.sink.table.columns` of the dead-letter sink."""
    deadletter_table_bytes: int | str
    """`flink.deadletter.table.bytes`: `flink.sink.table.bytes` of the dead-letter sink. A number is in bytes."""
    deadletter_kinesis_stream: str
    """`flink.deadletter.kinesis.stream`: `flink.sink.kinesis.stream` of the dead-letter sink."""
    deadletter_kinesis_queue_limit: int
    """`flink.deadletter.kinesis.queue.limit`: `flink.sink.kinesis.queue.limit` of the dead-letter sink."""
    deadletter_kinesis_queue_bytes: int | str
    """`flink.deadletter.kinesis.queue.bytes`: `flink.sink.kinesis.queue.bytes` of the dead-letter sink. A number is in bytes."""
    deadletter_kinesis_ordering: Literal["NONE", "PER_KEY"]
    """`flink.deadletter.kinesis.ordering`: `flink.sink.kinesis.ordering` of the dead-letter sink."""
    deadletter_kinesis_failonerror: bool
    """`flink.deadletter.kinesis.failonerror`: `flink.sink.kinesis.failonerror` of the dead-letter sink."""


class JobSettings(ReadSettings, total=False):
    """Keyword arguments of `DataFetcher`, `stream`, `consume`, `KinesisSink` and `Producer`.

    The text of each argument begins with the property that it stands for.
    """

    start: Literal["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"] | datetime | timedelta | str | float
    """`flink.stream.initpos`: Where a new job starts. LATEST and an age become a time of the service's clock once."""
    stream_initpos: Literal["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"] | datetime | timedelta | str | float
    """The same as `start`."""
    start_timestamp: datetime | str | float
    """`flink.stream.initpos.timestamp`: Start for AT_TIMESTAMP: epoch seconds, ISO-8601 with a zone, or text in the given format (UTC
    without one)."""
    stream_initpos_timestamp: datetime | str | float
    """The same as `start_timestamp`."""
    start_timestamp_format: str
    """`flink.stream.initpos.timestamp.format`: Java SimpleDateFormat of the start timestamp, with a year."""
    stream_initpos_timestamp_format: str
    """The same as `start_timestamp_format`."""


class Settings(JobSettings, total=False):
    """Keyword arguments of `Properties`: those of `DataFetcher`, and those for which `DataFetcher` has arguments of another form."""

    streams: str
    """`flink.streams`: Names or ARNs of the streams that `recordpublisher run` reads, comma-separated."""
    streams_file: str
    """`flink.streams.file`: A file with a name or an ARN of a stream on each line, instead of flink.streams; read again at each
    flink.shard.discovery.intervalmillis."""
    streams_function: str
    """`flink.streams.function`: A function (module:function) that returns names or ARNs, instead of flink.streams; called again at each
    flink.shard.discovery.intervalmillis."""
    sink: str
    """`flink.sink`: Where `recordpublisher run` writes: the name of a sink, bundled or a plugin's."""
    deserializer: str
    """`flink.deserializer`: How a record becomes a value: bytes, text, json, avro, protobuf, glue, or a plugin's name; or `module:name`
    of a type or function."""
