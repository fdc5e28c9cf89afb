"""A test of the table that was skipped makes the run fail."""

from conformance.skipped_rows import left_out
from conformance.table import all_rows

NAMED = next(test for row in all_rows() for test in row.tests)


def test_a_skipped_test_of_the_table_is_named_with_its_reason():
    assert left_out({NAMED: "Skipped: no time"}) == [f"{NAMED}: Skipped: no time"]


def test_one_parameter_of_it_counts_too():
    assert len(left_out({f"{NAMED}[EFO]": "Skipped: no time"})) == 1


def test_a_server_that_is_not_installed_is_no_failure():
    assert left_out({NAMED: "Skipped: kinesis-local is not installed"}) == []


def test_other_tests_may_be_skipped():
    assert left_out({"cli/test_app.py::test_x": "Skipped: no time"}) == []
