"""Texts of messages: lists are short."""

from recordpublisher.publishers.safe_text import few_of


def test_a_long_list_ends_with_the_number_of_the_names_that_are_not_shown():
    assert few_of(["a", "b", "c"], most=3) == "a, b, c"
    assert few_of(["a", "b", "c", "d"], most=2) == "a, b and 2 more"
