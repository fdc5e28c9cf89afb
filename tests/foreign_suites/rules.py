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
    Rule(r"test_get_records_(latest|at_timestamp|timestamp_filtering|millis)", "a clock that the test shifts"),
    Rule(r"AssertionError: assert '\d[\d.]*' == '\d+'", "moto's own sequence numbers"),
    Rule(r"AssertionError: assert 'arn:[^\n]* == 'arn:", "a consumer's ARN without its creation time"),
    Rule(r"test_list_many_streams", "moto's page size: the API's default is 100"),
    Rule(r"test_list_shards_paging|at_very_new_timestamp", "what moto accepts and the service refuses"),
    Rule(r"update_shard_count", "how many closed shards UpdateShardCount leaves is not documented"),
    Rule(r"test_invalid_shard_iterator_type|exceeds_5mb", "rules before the API's present model"),
    Rule(r"test_stream_creation_on_demand", "on-demand mode is not simulated"),
)
KINESALITE_RULES = (
    Rule(r"^(add|remove|list)Tags", NO_OPERATION),
    Rule(r"^kinesalite connections", "rules for requests that no SDK sends, and CBOR"),
    Rule(r"wrong types are not compared", "wrong types in a request: SDKs check types before they send"),
    Rule(r"LimitExceededException|retention period greater than 168", "limits of an account, or those before 2020"),
    Rule(r"expected Object \{\} to be ''", "an empty response is {} here"),
    Rule(
        r"ResourceNotFoundException instead of|^(get|merge|split)[^\n]*\nexpected 400 to be 200",
        "short forms of shard ids (shardId-0), which are not resolved here",
    ),
    Rule(
        r"SequenceNumberForOrdering|large date|StreamSummaries|for no StreamName|should return stream description",
        "rules before the API's present model",
    ),
)
ASYNC_KINESIS_RULES = (
    Rule(r"test_producer_consumer_with_stream_arn", "the account and the region of the server it was written for"),
)
