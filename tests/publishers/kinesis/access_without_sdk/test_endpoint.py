from urllib.parse import urlsplit

import pytest

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.kinesis.endpoints import endpoint_of, region_of, tls_name
from recordpublisher.publishers.properties.properties import Properties

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"


@pytest.fixture(autouse=True)
def no_aws_environment(monkeypatch, tmp_path):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))


@pytest.mark.parametrize(
    "endpoint", ["localhost:4567", "ftp://x", "http://", "http://h:notaport", "https://[::1", "4567", "http://h:0"]
)
def test_c2_an_endpoint_must_be_an_http_url(endpoint):
    with pytest.raises(ConfigurationError, match=r"aws\.endpoint"):
        endpoint_of(Properties({"aws.endpoint": endpoint}))


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:4567", "https://kinesis.example.com", "http://[::1]:80/"])
def test_http_urls_are_valid_endpoints(endpoint):
    assert endpoint_of(Properties({"aws.endpoint": endpoint})) == endpoint


def test_c2_no_region_and_no_endpoint_is_an_error_that_names_the_property():
    with pytest.raises(ConfigurationError, match=r"aws\.region.*is required") as raised:
        region_of(Properties({}), ["orders"])
    assert raised.value.key == "aws.region"


def test_the_region_property_comes_first(monkeypatch):
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert region_of(Properties({"aws.region": "eu-west-1"}), [ARN]) == "eu-west-1"


def test_the_region_of_an_arn_comes_before_the_environment(monkeypatch):
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert region_of(Properties({"aws.endpoint": "http://h"}), [ARN]) == "eu-west-1"


@pytest.mark.parametrize("name", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_the_region_may_be_set_in_the_environment(monkeypatch, name):
    monkeypatch.setenv(name, "us-west-2")
    assert region_of(Properties({}), ["orders"]) == "us-west-2"


def test_with_an_endpoint_no_region_is_needed():
    assert region_of(Properties({"aws.endpoint": "http://127.0.0.1:1"}))


def test_with_arns_of_several_regions_the_environment_decides_for_names(monkeypatch):
    other = ARN.replace("eu-west-1", "ap-south-1")
    assert region_of(Properties({}), [ARN, other]) == "ap-south-1"
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert region_of(Properties({}), [ARN, other, "clicks"]) == "us-west-2"


def test_the_endpoint_of_a_region_comes_first():
    given = Properties({"aws.endpoint": "http://all:1", "aws.endpoint.eu-west-1": "http://one:2"})
    assert endpoint_of(given, "eu-west-1") == "http://one:2"
    assert endpoint_of(given, "us-east-1") == "http://all:1"


def test_c2_the_endpoint_of_a_region_must_be_an_http_url():
    with pytest.raises(ConfigurationError, match=r"aws\.endpoint\.eu-west-1.*nowhere"):
        endpoint_of(Properties({"aws.endpoint.eu-west-1": "nowhere"}), "eu-west-1")


def test_c2_an_arn_of_another_resource_is_an_error():
    with pytest.raises(ConfigurationError, match="arn:aws:s3:::bucket"):
        region_of(Properties({"aws.region": "eu-west-1"}), ["arn:aws:s3:::bucket"])


@pytest.mark.parametrize("region", ["wrongRegionId", "us-east", "us_east_1", "us-east-1a", "EU-WEST-1"])
def test_c2_an_invalid_region_is_an_error(region):
    with pytest.raises(ConfigurationError, match=r"aws\.region.*eu-west-1"):
        region_of(Properties({"aws.region": region}), ["orders"])


@pytest.mark.parametrize(
    "region", ["us-east-1", "us-gov-west-1", "us-isob-east-1", "ap-southeast-12", "eusc-de-east-1"]
)
def test_all_partitions_have_valid_regions(region):
    assert region_of(Properties({"aws.region": region}), ["orders"]) == region


def test_with_an_endpoint_any_region_is_valid():
    assert region_of(Properties({"aws.region": "local", "aws.endpoint": "http://h"}), ["orders"]) == "local"


def two_profiles(tmp_path, monkeypatch):
    config = tmp_path / "config"
    config.write_text("[default]\nregion=eu-west-1\n[profile other]\nregion=ap-south-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)


PROFILE = "aws.credentials.provider.profile.name"


def test_a_profile_chosen_by_property_brings_its_region(tmp_path, monkeypatch):
    """Otherwise its keys would be used for a stream of the same name in the default profile's region."""
    two_profiles(tmp_path, monkeypatch)
    assert region_of(Properties({PROFILE: "other"})) == "ap-south-1"
    assert region_of(Properties({})) == "eu-west-1"


@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_a_region_in_the_environment_comes_before_the_profiles(tmp_path, monkeypatch, variable):
    two_profiles(tmp_path, monkeypatch)
    monkeypatch.setenv(variable, "us-west-2")
    assert region_of(Properties({PROFILE: "other"})) == "us-west-2"


def test_a_region_in_the_credentials_file_of_a_property_is_used(tmp_path, monkeypatch):
    two_profiles(tmp_path, monkeypatch)
    path = tmp_path / "elsewhere"
    path.write_text("[third]\nregion=sa-east-1\naws_access_key_id=a\naws_secret_access_key=s\n")
    chosen = {PROFILE: "third", "aws.credentials.provider.profile.path": str(path)}
    assert region_of(Properties(chosen)) == "sa-east-1"


def test_a_missing_profile_is_reported_before_a_missing_region(tmp_path, monkeypatch):
    two_profiles(tmp_path, monkeypatch)
    with pytest.raises(ConfigurationError, match=PROFILE):
        region_of(Properties({PROFILE: "missing"}))


@pytest.mark.parametrize(
    ("url", "name"), [("https://host.:443/", "host"), ("https://host", "host"), ("https://[::1]", "::1")]
)
def test_certificates_name_hosts_without_the_final_dot_of_dns(url, name):
    assert tls_name(urlsplit(url)) == name
