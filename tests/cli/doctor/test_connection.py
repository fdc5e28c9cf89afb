"""What `doctor` says about the way to the services, on prepared faults."""

from functools import partial

import pytest

from recordpublisher.cli.doctor.connection import (
    aws_findings,
    kinesis_endpoint,
    kinesis_endpoints,
    network_findings,
    service_findings,
)
from recordpublisher.publishers.properties.properties import Properties

LOCAL = {
    "aws.region": "eu-west-1",
    "aws.endpoint": "http://127.0.0.1:1",
    "aws.credentials.provider.basic.accesskeyid": "me",
    "aws.credentials.provider.basic.secretkey": "mine",
}


async def found(**properties):
    """The verdict and words of each check by its name."""
    given = Properties({**LOCAL, **properties})
    endpoints = {"Kinesis": partial(kinesis_endpoint, given, ["orders"])}
    findings = [*await aws_findings(given, ["orders"]), *await network_findings(endpoints)]
    return {each.name: (each.verdict.value, each.words) for each in findings}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


async def test_a_machine_that_reaches_the_endpoint():
    checked = await found()

    assert checked["region"] == ("ok", "eu-west-1")
    assert checked["proxy"] == ("ok", "none")
    assert checked["DNS"] == ("ok", "127.0.0.1 is 127.0.0.1")


async def test_missing_credentials_are_a_problem_that_says_where_was_looked(monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    findings = await aws_findings(Properties({"aws.region": "eu-west-1"}), ["orders"])
    verdict, words = {each.name: (each.verdict.value, each.words) for each in findings}["credentials"]

    assert verdict == "PROBLEM"
    assert "No AWS credentials found. Looked in: - the environment" in words


async def test_a_region_that_is_none():
    checked = await found(**{"aws.region": "mars", "aws.endpoint": None})

    words = "property 'aws.region' is 'mars'. Valid: a region such as eu-west-1"
    assert checked["region"] == ("PROBLEM", words)


async def test_credentials_that_are_not_complete():
    verdict, words = (await found(**{"aws.credentials.provider.basic.secretkey": None}))["credentials"]

    assert verdict == "PROBLEM"
    assert "aws.credentials.provider.basic.secretkey" in words


async def test_a_host_that_dns_does_not_know():
    verdict, words = (await found(**{"aws.endpoint": "http://nowhere.invalid:1"}))["DNS"]

    assert verdict == "PROBLEM"
    assert "nowhere.invalid is not known to this machine's DNS" in words


async def test_a_ca_file_that_is_missing(monkeypatch):
    monkeypatch.setenv("AWS_CA_BUNDLE", "/nowhere.pem")

    verdict, words = (await found())["CA file"]

    assert verdict == "PROBLEM"
    assert "/nowhere.pem" in words


async def test_a_proxy_is_shown_without_its_password(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://me:s3cr3t@127.0.0.1:1")

    checked = await found(**{"aws.endpoint": "http://kinesis.example"})

    assert checked["proxy"][0] == "ok"
    assert checked["proxy"][1].startswith("calls go through http://")
    assert "s3cr3t" not in str(checked)
    assert checked["DNS"][0] == "not checked"


async def test_each_of_several_services_has_its_own_lines():
    async def other():
        return "http://127.0.0.1:2"

    endpoints = {"Kinesis": partial(kinesis_endpoint, Properties(LOCAL), ["orders"]), "DYNAMODB_STREAMS": other}
    names = [each.name for each in await network_findings(endpoints)]

    services = ("Kinesis", "DYNAMODB_STREAMS")
    assert names == [f"{check}, {service}" for service in services for check in ("proxy", "DNS", "connection")]


async def test_streams_by_arn_are_reached_in_their_own_regions():
    given = Properties({**LOCAL, "aws.endpoint": None, "aws.region": "us-east-1"})
    arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"

    endpoints = kinesis_endpoints(given, ["orders", f"eu={arn}"])
    assert {service: await find() for service, find in endpoints.items()} == {
        "Kinesis": "https://kinesis.us-east-1.amazonaws.com",
        "Kinesis in eu-west-1": "https://kinesis.eu-west-1.amazonaws.com",
    }
    assert [*kinesis_endpoints(Properties(LOCAL), ["orders", arn])] == ["Kinesis"]


async def test_each_service_has_a_line_with_endpoint_region_and_whose_key(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:2")
    found = await service_findings(Properties(LOCAL), {"kinesis": LOCAL["aws.endpoint"], "s3": None})
    assert [(each.name, each.words) for each in found] == [
        ("calls of kinesis", "http://127.0.0.1:1, region eu-west-1, signed by me (found by explicit)"),
        ("calls of s3", "http://127.0.0.1:2, region eu-west-1, signed by me (found by explicit)"),
    ]


@pytest.mark.parametrize("url", ["file:///var/log/orders", "sqlite:orders.db"])
async def test_a_url_without_a_host_needs_no_network(url):
    async def find():
        return url

    findings = await network_findings({"files": find})

    assert [(each.name, each.verdict.value, each.words) for each in findings] == [
        (name, "not checked", f"{url} has no host") for name in ("proxy", "DNS", "connection")
    ]
