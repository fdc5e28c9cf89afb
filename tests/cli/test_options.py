"""Options that several commands share."""

import pytest

import recordpublisher as rp
from recordpublisher.cli.options import read_properties


def test_options_override_pairs_and_pairs_the_file(tmp_path):
    job = tmp_path / "job.properties"
    job.write_text("aws.region=of-the-file\naws.endpoint=http://of-the-file\nflink.stream.initpos=LATEST\n")

    found = read_properties(job, ["aws.region=of-a-pair", "aws.endpoint=http://of-a-pair"], region="of-an-option")

    assert dict(found) == {
        "aws.region": "of-an-option",
        "aws.endpoint": "http://of-a-pair",
        "flink.stream.initpos": "LATEST",
    }


def test_a_profile_brings_its_credentials():
    assert dict(read_properties(None, None, endpoint="http://there", profile="test")) == {
        "aws.endpoint": "http://there",
        "aws.credentials.provider": "PROFILE",
        "aws.credentials.provider.profile.name": "test",
    }


def test_a_file_without_a_property_is_no_properties_file(tmp_path):
    records = tmp_path / "orders.jsonl"
    records.write_text('{"order": 1}\n')

    with pytest.raises(
        rp.ConfigurationError, match=r"orders.jsonl.*no property of this package.*order.*properties file"
    ):
        read_properties(records, None)
