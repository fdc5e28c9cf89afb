"""Which failures of a foreign suite say nothing about the endpoint, and why."""

from __future__ import annotations

from typing import NamedTuple


class Rule(NamedTuple):
    """A failure whose test's name or text matches `pattern` cannot be compared, for `reason`."""

    pattern: str
    reason: str


WORDING = "the wording of a message"
MOTO_RULES = (
    Rule(r"test_describe_limits", "the account's limit of shards: 20,000 in large regions since 2025, moto has 6,000"),
    Rule(
        r"test_enable_enhanced_monitoring_all",
        "ALL is shown as the metrics it stands for, as in the API reference's response",
    ),
    Rule(r"cloudformation", "CloudFormation, which is not here"),
    Rule(r"exceeds_1mb|too_many_records", "a message without the value, which AWS's messages have"),
    Rule(r"from_unknown_resource", "a message with the ARN: AWS names the stream, as LocalStack recorded"),
    Rule(r"AssertionError: assert '[^'\n]* [^\n]*' == '[^'\n]* ", WORDING),
    Rule(r"test_merge_shards_invalid_arg|hashkey_out_of_bounds", "moto's own message or hash range"),
    Rule(
        r"test_get_records_(at_timestamp|timestamp_filtering|millis)",
        "a clock set back to before the stream was created",
    ),
    Rule(r"AssertionError: assert '\d[\d.]*' == '\d+'", "moto's own sequence numbers: 1, 2, 3"),
    Rule(r"test_register_stream_consumer", "a consumer's ARN without its creation time"),
    Rule(r"test_list_many_streams", "moto's page size: the API's default is 100"),
    Rule(
        r"test_list_shards_paging|at_very_new_timestamp|test_get_records_latest|update_shard_count\[10-3-17\]",
        "what moto accepts and the API reference or kinesalite's recordings refuse",
    ),
    Rule(r"update_shard_count", "how many closed shards UpdateShardCount leaves is not documented"),
    Rule(r"test_invalid_shard_iterator_type", "another error than AWS returned to kinesalite's tests"),
    Rule(r"exceeds_5mb", "the limit of 5 MB a request before 2025"),
)
KINESALITE_RULES = (
    Rule(
        r"^kinesalite connections.*(OPTIONS|Origin)",
        "CORS: any web page could read from an endpoint without credentials",
    ),
    Rule(r"for too many (tags|TagKeys)", "the limit of 10 tags a call; the API model now has 200 and 50"),
    Rule(r"LimitExceededException for large ShardCount", "an account's quota of shards"),
    Rule(r"retention period greater than 168", "the limit of 7 days before 2020"),
    Rule(r"for no StreamName", "StreamName, which is optional since 2022 (StreamARN)"),
    Rule(
        r"SequenceNumberForOrdering (all 0|if 8)|should safely put concurrent|with mixed values",
        "the inner form of AWS's sequence numbers, which is not documented",
    ),
    Rule(r"should return InternalFailure", "a number that made the service itself fail"),
    Rule(r"^(merge|split)Shards? functionality", "how long the old shards are shown: here they close at once"),
)
ASYNC_KINESIS_RULES = (
    Rule(r"test_producer_consumer_with_stream_arn", "the account and the region of the server it was written for"),
)
