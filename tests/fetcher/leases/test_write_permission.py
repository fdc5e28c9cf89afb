"""E4: who cannot renew stops writing before others can replace it."""

from recordpublisher.fetcher.leases.heartbeat import WritePermission


class HandClock:
    """A machine's clocks: `sleep` stops the monotonic one."""

    slept = 0.0

    def __init__(self):
        self.seconds = 100.0

    def monotonic(self):
        return self.seconds

    def boottime(self):
        return self.seconds + self.slept


def permission_at(clock):
    return WritePermission(clock, 12.0)


def test_there_is_no_permission_before_the_first_heartbeat():
    assert not permission_at(HandClock()).is_given


def test_the_time_counts_from_the_sending_and_not_from_the_answer():
    clock = HandClock()
    permission = permission_at(clock)
    sent = permission.send_time()
    clock.seconds += 9
    permission.confirm(sent)
    assert permission.is_given
    clock.seconds += 2.9
    assert permission.is_given
    clock.seconds += 0.2
    assert not permission.is_given


def test_an_answer_that_comes_late_does_not_replace_a_later_heartbeat():
    clock = HandClock()
    permission = permission_at(clock)
    first = permission.send_time()
    clock.seconds += 5
    permission.confirm(permission.send_time())
    permission.confirm(first)
    clock.seconds += 11
    assert permission.is_given


def test_the_sleep_of_a_machine_counts_although_nobody_has_noticed_it():  # its wall clock was set back on waking, for example
    clock = HandClock()
    permission = permission_at(clock)
    permission.confirm(permission.send_time())
    clock.slept += 60
    assert not permission.is_given
    permission.confirm(permission.send_time())
    assert permission.is_given


def test_after_a_suspension_only_a_heartbeat_sent_since_then_counts():  # a clock may stand still while the machine sleeps
    clock = HandClock()
    permission = permission_at(clock)
    before = permission.send_time()
    permission.confirm(before)
    permission.on_suspension()
    assert not permission.is_given
    permission.confirm(before)
    assert not permission.is_given
    permission.confirm(permission.send_time())
    assert permission.is_given
