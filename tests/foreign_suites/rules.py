"""Which failures of a foreign suite say nothing about the endpoint, and why."""

from __future__ import annotations

from typing import NamedTuple


class Rule(NamedTuple):
    """A failure whose test's name or text matches `pattern` cannot be compared, for `reason`."""

    pattern: str
    reason: str


NO_OPERATION = "an operation that the endpoint does not have"
WORDING = "the wording of a message"
MOTO_RULES = (
    Rule(r"UnknownOperation|resource_policy", NO_OPERATION),
    Rule(r"cloudformation", "CloudFormation"),
    Rule(r"AssertionError: assert '[^'\n]* [^\n]*' == '[^'\n]* ", WORDING),
    Rule(r"test_merge_shards_invalid_arg|hashkey_out_of_bounds", WORDING),
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
    Rule(r"^(add|remove|list)Tags", NO_OPERATION),
    Rule(
        r"^kinesalite connections.*(auth|header is|query)",
        "signatures are checked only by an endpoint with credentials",
    ),
    Rule(r"^kinesalite connections.*(CBOR|SSL|OPTIONS)", "CBOR, TLS and CORS, which the endpoint does not have"),
    Rule(r"^kinesalite connections", "HTTP requests that no SDK sends: other methods, content types and bodies"),
    Rule(r"LimitExceededException for large ShardCount", "an account's quota of shards"),
    Rule(r"retention period greater than 168", "the limit of 7 days before 2020"),
    Rule(r"for no StreamName", "StreamName, which is optional since 2022 (StreamARN)"),
    Rule(
        r"SequenceNumberForOrdering (all 0|if 8)|should safely put concurrent|with mixed values",
        "the inner form of AWS's sequence numbers, which is not documented",
    ),
    Rule(r"should return InternalFailure", "a number that made the service itself fail"),
    Rule(r"if ShardIterator has expired", WORDING),
    Rule(r"^(merge|split)Shards? functionality", "how long the old shards are shown: here they close at once"),
)
ASYNC_KINESIS_RULES = (
    Rule(r"test_producer_consumer_with_stream_arn", "the account and the region of the server it was written for"),
)
