"""What doctor tells of one fault that several checks meet."""

from recordpublisher.cli.doctor.findings import Finding, Verdict, without_repeated_problems

MISSING = "no sink of that name is installed"


def test_a_fault_that_several_checks_meet_is_one_problem():
    met = [Finding(name, Verdict.PROBLEM, MISSING) for name in ("sink", "runs elsewhere", "orders: lag")]
    others = [Finding("store", Verdict.OK, "reachable"), Finding("clock", Verdict.PROBLEM, "it is off")]

    assert without_repeated_problems([*others, *met]) == [
        *others,
        met[0],
        Finding("runs elsewhere", Verdict.NOT_CHECKED, "because of sink"),
        Finding("orders: lag", Verdict.NOT_CHECKED, "because of sink"),
    ]
