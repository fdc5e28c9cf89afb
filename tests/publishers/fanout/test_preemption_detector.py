"""TakeOverWatch: a restart takes over once, a foreign reader again and again (F10)."""

import pytest

from recordpublisher.publishers.errors import ConsumerError
from recordpublisher.publishers.fanout.preemption_detector import TakeOverWatch

from fakes.fanout_service import ARN, SHARD


def test_the_fifth_take_over_in_a_row_is_an_error_that_names_the_consumer():
    watch = TakeOverWatch(SHARD)
    for _ in range(4):
        watch.taken_over(ARN)
    with pytest.raises(ConsumerError, match=rf"{SHARD.key} was taken over 5 times.*{ARN}.*consumername"):
        watch.taken_over(ARN)


def test_another_end_breaks_the_row_and_a_new_subscription_does_not():
    watch = TakeOverWatch(SHARD)
    for _ in range(4):
        watch.taken_over(ARN)
        watch.established()
    watch.ended_by_itself()
    watch.taken_over(ARN)


def test_the_twelfth_refusal_in_a_row_is_an_error_that_names_the_consumer():
    watch = TakeOverWatch(SHARD)
    for _ in range(11):
        watch.refused(ARN)
    with pytest.raises(ConsumerError, match=ARN):
        watch.refused(ARN)


def test_a_subscription_breaks_the_row_of_refusals():
    watch = TakeOverWatch(SHARD)
    for _ in range(11):
        watch.refused(ARN)
    watch.established()
    watch.refused(ARN)
