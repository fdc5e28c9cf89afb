"""Text for messages."""

from recordpublisher.publishers.safe_text import first_of


def test_the_first_names_are_listed_and_the_others_counted():
    assert first_of([]) == ""
    assert first_of({"b", "a"}) == "a, b"
    assert first_of("edcba") == "a, b, c, d, e"
    assert first_of(["shard 1", "shard 3", "shard 2"], most=2) == "shard 1, shard 2 and 1 more"
