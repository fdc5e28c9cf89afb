"""SubscriptionPreemptionDetector: a restart takes over once, another job repeatedly (F10)."""

import pytest

from recordpublisher.publishers.errors import ConsumerError
from recordpublisher.publishers.fanout.preemption_detector import SubscriptionPreemptionDetector

from fakes.fanout_service import ARN, SHARD


def test_the_fifth_take_over_in_a_row_is_an_error_that_names_the_consumer():
    detector = SubscriptionPreemptionDetector(SHARD)
    for _ in range(4):
        detector.on_preempted(ARN)
    with pytest.raises(ConsumerError, match=rf"{SHARD.key} was taken over 5 times.*{ARN}.*consumername"):
        detector.on_preempted(ARN)


def test_another_end_resets_the_count_and_a_new_subscription_does_not():
    detector = SubscriptionPreemptionDetector(SHARD)
    for _ in range(4):
        detector.on_preempted(ARN)
        detector.on_subscribed()
    detector.on_other_end()
    detector.on_preempted(ARN)


def test_the_twelfth_refusal_in_a_row_is_an_error_that_names_the_consumer():
    detector = SubscriptionPreemptionDetector(SHARD)
    for _ in range(11):
        detector.on_in_use(ARN)
    with pytest.raises(ConsumerError, match=ARN):
        detector.on_in_use(ARN)


def test_a_subscription_resets_the_count_of_refusals():
    detector = SubscriptionPreemptionDetector(SHARD)
    for _ in range(11):
        detector.on_in_use(ARN)
    detector.on_subscribed()
    detector.on_in_use(ARN)
