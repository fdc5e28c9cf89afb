"""Which records `tail` prints: those whose key and payload match."""

import pytest

import recordpublisher as rp
from recordpublisher.cli.commands.tail import compiled_pattern, matches_patterns

from fakes.batches import batch


@pytest.mark.parametrize(
    ("key", "content", "expected"), [(None, None, True), ("^k", "ex", True), ("x", None, False), (None, "^ex", False)]
)
def test_key_and_payload_must_both_match(key, content, expected):
    (record,) = batch(b"text")
    assert matches_patterns(record, compiled_pattern("--key", key), compiled_pattern("--grep", content)) is expected


def test_a_wrong_pattern_names_its_option():
    with pytest.raises(rp.ConfigurationError, match=r"--grep.*regular expression"):
        compiled_pattern("--grep", "(")
