"""A text whose valid values a plugin describes and checks itself (C2)."""

import re
import traceback
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from recordpublisher import ConfigurationError, Properties
from recordpublisher.publishers.properties import declaration, text


def check_url(url):
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"its scheme is '{parts.scheme}'")


@pytest.fixture(autouse=True)
def declared(monkeypatch):
    """Properties that are declared for one test only."""
    monkeypatch.setattr(declaration, "_declared", dict(declaration._declared))
    valid_url = "a URL such as https://host:8080/path"
    names = text("flink.checked.names", "Names.", "a,b", valid="names, with commas", check=lambda given: "," in given)
    return SimpleNamespace(
        url=text("flink.checked.url", "The service.", valid=valid_url, check=check_url),
        names=names,
        secret=text("flink.checked.handshake", "A word.", valid="a long word", check=check_url, secret=True),
    )


def test_a_valid_text_is_the_value(declared):
    given = Properties({"flink.checked.url": " https://host ", "flink.checked.names": "c,d"})

    assert (given.value(declared.url), given.value(declared.names)) == ("https://host", "c,d")
    assert (Properties({}).value(declared.url), Properties({}).value(declared.names)) == (None, "a,b")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"flink.checked.url": "ftp://host"},
            "property 'flink.checked.url' is 'ftp://host': its scheme is 'ftp'. Valid: a URL such as https://host:8080/path",
        ),
        ({"flink.checked.names": "c"}, "property 'flink.checked.names' is 'c'. Valid: names, with commas"),
        ({"flink.checked.names": " "}, "property 'flink.checked.names' is ' '. Valid: names, with commas"),
    ],
)
def test_another_text_is_refused_when_the_properties_are_checked(given, message):
    with pytest.raises(ConfigurationError, match=f"^{re.escape(message)}$"):
        Properties(given).check()


def test_the_words_of_a_check_of_a_secret_are_not_shown(declared):  # C3: they may quote the value
    with pytest.raises(ConfigurationError) as raised:
        Properties({"flink.checked.handshake": "opensesame://x"}).value(declared.secret)

    assert str(raised.value) == "property 'flink.checked.handshake' is '******'. Valid: a long word"
    assert "its scheme is" not in "".join(traceback.format_exception(raised.value))


def test_a_default_is_checked_when_it_is_declared():
    with pytest.raises(ConfigurationError, match="would be refused as a given value"):
        text("flink.checked.other", "The service.", "ftp://host", valid="a URL", check=check_url)


def test_an_error_of_the_check_itself_names_the_property():
    broken = text("flink.checked.broken", "Broken.", valid="anything", check=lambda given: {}[given])

    with pytest.raises(KeyError) as raised:
        Properties({"flink.checked.broken": "x"}).value(broken)

    assert raised.value.__notes__ == ["raised by the `check` of the property 'flink.checked.broken'"]
