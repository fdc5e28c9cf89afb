import pytest

from recordpublisher.publishers.java_dates import parse_java_date

# expected values as java.text.SimpleDateFormat gives them
READABLE = [
    ("2023-11-14T22:13:20.123+00:00", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2023-11-14T22:13:20.123+00:00"),
    ("2023-11-14T22:13:20.123Z", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2023-11-14T22:13:20.123+00:00"),
    ("2023-11-14T22:13:20.5+05:30", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2023-11-14T22:13:20.005+05:30"),
    ("2023-11-14 22:13:20", "yyyy-MM-dd HH:mm:ss", "2023-11-14T22:13:20+00:00"),
    ("14.11.23", "dd.MM.yy", "2023-11-14T00:00:00+00:00"),
    ("20231114", "yyyyMMdd", "2023-11-14T00:00:00+00:00"),
    ("11/14/2023 10:13 PM -0500", "MM/dd/yyyy hh:mm a Z", "2023-11-14T22:13:00-05:00"),
    ("12 am, 14 Nov 2023", "h a, d MMM yyyy", "2023-11-14T00:00:00+00:00"),
    ("Tue, 14 November 2023 22:13:20 GMT", "EEE, d MMMM yyyy HH:mm:ss z", "2023-11-14T22:13:20+00:00"),
    ("22:13 GMT+02:00", "HH:mm z", "1970-01-01T22:13:00+02:00"),
    ("at o'clock 7", "'at o''clock' H", "1970-01-01T07:00:00+00:00"),
    ("2023-11-14+01", "yyyy-MM-ddX", "2023-11-14T00:00:00+01:00"),
]


@pytest.mark.parametrize(("text", "pattern", "expected"), READABLE)
def test_the_usual_patterns_are_read(text, pattern, expected):
    assert parse_java_date(text, pattern).isoformat(timespec="auto") == expected.replace(".123+", ".123000+").replace(
        ".005+", ".005000+"
    )


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("2023-11-14", "yyyy/MM/dd"),
        ("2023-13-14", "yyyy-MM-dd"),
        ("2023-11-14 tail", "yyyy-MM-dd"),
        ("14 Foo 2023", "d MMM yyyy"),
        ("2023", "YYYY"),
        ("2023 2023", "yyyy yyyy"),
        ("2023-11-14 PST", "yyyy-MM-dd z"),
        ("", "yyyy"),
    ],
)
def test_what_does_not_fit_is_a_value_error(text, pattern):
    with pytest.raises(ValueError, match=r"."):
        parse_java_date(text, pattern)
