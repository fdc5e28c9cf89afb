"""Every declared property, with chosen and with random values (C1, C2)."""

import contextlib
import math
import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordpublisher import ConfigurationError, Properties
from recordpublisher.cli.commands import properties
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.publishers.properties.declaration import declared_properties
from recordpublisher.publishers.properties.reading_properties import ALL_RETRIES, GETRECORDS_RETRIES

from random_inputs import inputs

properties.all_properties(load_registry())
DECLARED = declared_properties()
SINGLE = [declared for declared in DECLARED if not declared.is_prefix]
ids = pytest.mark.parametrize("declared", SINGLE, ids=lambda declared: declared.key)

FLIP_128 = {
    "flink.stream.recordpublisher": "POLLING",
    "flink.stream.efo.consumername": None,
    "flink.stream.efo.registration": "LAZY",
    **{
        f"flink.stream.{operation}.{part}": value
        for operation in ("registerstreamconsumer", "deregisterstreamconsumer")
        for part, value in (("maxretries", 10), ("backoff.base", 200), ("backoff.max", 1000), ("backoff.expconst", 1.5))
    },
    "flink.shard.subscribetoshard.maxretries": 5,
    "flink.shard.subscribetoshard.backoff.base": 1000,
    "flink.shard.subscribetoshard.backoff.max": 2000,
    "flink.shard.subscribetoshard.backoff.expconst": 1.5,
}
CONNECTOR = {
    "flink.stream.initpos": "LATEST",
    "flink.stream.initpos.timestamp": None,
    "flink.stream.initpos.timestamp.format": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    "flink.stream.describe.maxretries": 50,
    "flink.stream.describe.backoff.base": 2000,
    "flink.stream.describe.backoff.max": 5000,
    "flink.stream.describe.backoff.expconst": 1.5,
    "flink.list.shards.maxretries": 10,
    "flink.list.shards.backoff.base": 1000,
    "flink.list.shards.backoff.max": 5000,
    "flink.list.shards.backoff.expconst": 1.5,
    "flink.stream.describestreamconsumer.maxretries": 50,
    "flink.stream.describestreamconsumer.backoff.base": 2000,
    "flink.stream.describestreamconsumer.backoff.max": 5000,
    "flink.stream.describestreamconsumer.backoff.expconst": 1.5,
    "flink.stream.registerstreamconsumer.timeout": 60,
    "flink.stream.deregisterstreamconsumer.timeout": 60,
    "flink.shard.subscribetoshard.timeout": 60,
    "flink.shard.getrecords.maxrecordcount": 10_000,
    "flink.shard.getrecords.maxretries": 3,
    "flink.shard.getrecords.backoff.base": 300,
    "flink.shard.getrecords.backoff.max": 1000,
    "flink.shard.getrecords.backoff.expconst": 1.5,
    "flink.shard.getrecords.intervalmillis": 200,
    "flink.shard.getiterator.maxretries": 3,
    "flink.shard.getiterator.backoff.base": 300,
    "flink.shard.getiterator.backoff.max": 1000,
    "flink.shard.getiterator.backoff.expconst": 1.5,
    "flink.shard.discovery.intervalmillis": 10_000,
    "flink.shard.adaptivereads": False,
    "flink.shard.idle.interval": -1,
}


@pytest.mark.parametrize(("key", "default"), [*FLIP_128.items(), *CONNECTOR.items()])
def test_keys_of_the_flip_have_its_defaults_and_keys_of_the_connector_the_connectors(key, default):
    found = next(declared for declared in DECLARED if declared.key == key)

    assert Properties().value(found) == default


@ids
def test_a_default_is_a_valid_value(declared):
    if declared.default is not None:
        assert Properties({declared.key: declared.default}).value(declared) == declared.default


@ids
def test_a_declaration_is_complete(declared):
    of_the_kpl = declared.group == "Kinesis sink" and re.fullmatch(r"([A-Z][a-z]+)+", declared.key)
    words = "a key has lower-case letters, dots and hyphens, no underscore (CONTRIBUTING.md)"
    assert of_the_kpl or re.fullmatch(r"(flink|aws)\.[a-z.-]+[a-z]", declared.key), words
    assert declared.sentence.endswith(".")
    assert declared.valid
    assert declared.group
    assert declared.type_name
    assert (declared.unit != "") == (declared.type_name == "int" and not declared.key.endswith("maxretries"))


def test_no_key_is_declared_twice():
    keys = [key for declared in DECLARED for key in (declared.key, *declared.aliases)]

    assert len(keys) == len(set(keys))


PYTHON_TYPES = {"int": int, "double": float, "boolean": bool, "enum": str, "string": str, "tags": dict}
WRONG = {
    "int": ["", "x", "1.5", "1e3", "1_000", "\u0663", "--1", "-2", "0x10", "1 0", "9" * 400],
    "double": ["", "x", "nan", "inf", "-inf", "0.5", "1_0.0", "1e999", "\u0661"],
    "boolean": ["", "yes", "1", "tru", "none"],
    "enum": ["", "x", "none ,", "LATEST,LAZY"],
    "string": ["", "   "],
    "tags": ["", "team", "=blue", "a=1,a=2"],
}


@ids
def test_an_invalid_value_is_an_error_with_key_value_and_valid_values(declared):
    for wrong in WRONG[declared.type_name]:
        with pytest.raises(ConfigurationError) as raised:
            Properties({declared.key: wrong}).value(declared)
        assert declared.key in str(raised.value)
        assert declared.valid in str(raised.value)
        assert declared.secret or repr(wrong) in str(raised.value)


@given(
    st.data(), st.one_of(st.text(), st.text(string.digits + "-+.eE_ "), st.integers().map(str), st.floats().map(str))
)
@settings(max_examples=inputs(400, 80), deadline=None)
def test_any_text_is_parsed_within_bounds_or_is_a_configuration_error(data, given_text):
    declared = data.draw(st.sampled_from(SINGLE))
    with contextlib.suppress(ConfigurationError):
        value = Properties({declared.key: given_text}).value(declared)
        assert type(value) is PYTHON_TYPES[declared.type_name]
        assert not isinstance(value, float) or math.isfinite(value)


@pytest.mark.parametrize("retries", ALL_RETRIES, ids=lambda retries: retries.base.key)
def test_a_base_above_its_maximum_is_refused(retries):
    properties = Properties({retries.base.key: "5001", retries.maximum.key: "5000"})

    with pytest.raises(ConfigurationError, match=rf"{retries.base.key}.*at most {retries.maximum.key} \(5000 ms\)"):
        retries.policy(properties)


def test_a_policy_reads_its_four_properties():
    retries = GETRECORDS_RETRIES
    keys = (retries.max_retries, retries.base, retries.maximum, retries.exponent)
    policy = retries.policy(Properties({declared.key: str(number) for number, declared in enumerate(keys, 1)}))

    assert (policy.max_retries, policy.base_ms, policy.max_ms, policy.exponent) == (1, 2, 3, 4.0)


@pytest.mark.parametrize("declared", DECLARED, ids=lambda declared: declared.key)
def test_what_is_printed_of_a_property_has_no_id_of_a_rule(declared):
    assert not re.search(r"\([A-Z]{1,2}\d+[a-z]?[,;)]", declared.sentence)
