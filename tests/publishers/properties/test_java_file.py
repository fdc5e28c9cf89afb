"""Java properties files, by the rules of java.util.Properties."""

import pytest

from recordpublisher import ConfigurationError, Properties
from recordpublisher.publishers.properties.java_file import parse_properties


@pytest.mark.parametrize(
    ("content", "pairs"),
    [
        ("a=1\nb:2\nc 3\n", {"a": "1", "b": "2", "c": "3"}),
        ("a = 1\nb : 2\n  c   3", {"a": "1", "b": "2", "c": "3"}),
        ("# one\n! two\n\n   # three\na=1", {"a": "1"}),
        ("a=one \\\n   two\nb=3", {"a": "one two", "b": "3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=x\\\n# no comment", {"a": "x# no comment"}),
        ("# a comment does not continue \\\na=1", {"a": "1"}),
        ("\\\n#key=1", {"#key": "1"}),
        ("a=1\\", {"a": "1"}),
        ("a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a=\\t|\\n|\\r|\\f|\\q", {"a": "\t|\n|\r|\f|q"}),
        ("a=\\u00e9\\u20ac", {"a": "é€"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=é 😀", {"a": "é 😀"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\u2028b=2\x0b\x85", {"a": "1\u2028b=2\x0b\x85"}),
        ("a=1\na=2", {"a": "2"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a=trailing space  ", {"a": "trailing space  "}),
        ("a\u00a0b=1", {"a\u00a0b": "1"}),
        ("a:=1", {"a": "=1"}),
        ("", {}),
    ],
)
def test_a_file_is_parsed_as_in_java(content, pairs):
    assert parse_properties(content) == pairs


@pytest.mark.parametrize("escape", ["\\u12", "\\uzzzz", "\\ud83d"])
def test_a_malformed_unicode_escape_is_refused(escape, tmp_path):
    file = tmp_path / "job.properties"
    file.write_text(f"a={escape}")

    with pytest.raises(ConfigurationError, match="readable Java properties file"):
        Properties.from_file(file)


def test_a_file_becomes_properties(tmp_path):
    file = tmp_path / "job.properties"
    file.write_bytes(b"\xef\xbb\xbfaws.region=eu-west-1\nFlink.Stream.InitPos = trim_horizon\n")

    assert dict(Properties.from_file(str(file))) == {"aws.region": "eu-west-1", "Flink.Stream.InitPos": "trim_horizon"}


@pytest.mark.parametrize("content", [None, b"a=\xff\xfe"])
def test_the_error_for_an_unreadable_file_names_it(content, tmp_path):
    file = tmp_path / "job.properties"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(ConfigurationError, match=r"job\.properties"):
        Properties.from_file(file)
