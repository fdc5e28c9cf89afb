"""The proxy of a call is the one that the AWS SDK finds."""

import pytest
from botocore.httpsession import ProxyConfiguration
from botocore.utils import get_environ_proxies

from recordpublisher.publishers.kinesis.proxies import has_proxies, proxy_for

PROXY = "http://proxy.example:3128"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"HTTPS_PROXY": PROXY}, PROXY),
        ({"https_proxy": "proxy.example:3128"}, PROXY),
        ({"https_proxy": "//proxy.example:3128"}, PROXY),
        ({"HTTP_PROXY": PROXY}, None),
        ({"ALL_PROXY": PROXY}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": ".example"}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "kinesis.example:4567"}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "kinesis.example:4568"}, PROXY),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}, None),
    ],
    ids=str,
)
def test_the_proxy_of_a_url_is_that_of_the_sdk(monkeypatch, environment, expected):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    url = "https://kinesis.example:4567/"

    assert proxy_for(url) == expected
    assert ProxyConfiguration(get_environ_proxies(url)).proxy_url_for(url) == expected


@pytest.mark.parametrize("name", ["HTTP_PROXY", "https_proxy", "ALL_PROXY"])
def test_any_proxy_leaves_the_calls_to_the_sdk(monkeypatch, name):
    assert not has_proxies()
    monkeypatch.setenv(name, PROXY)
    assert has_proxies()
