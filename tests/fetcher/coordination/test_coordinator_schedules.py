"""W6, W9a: random schedules of lost, delayed and duplicated messages, restarts of subtasks and of the coordinator."""

import heapq
import itertools
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordpublisher.fetcher.coordination.coordinator import Coordinator
from recordpublisher.fetcher.coordination.group_member import GroupMember, MemberConfig
from recordpublisher.fetcher.coordination.watermark_tracker import SubtaskReport, SubtaskStatus

SYNC, TIMEOUT, STARTUP = 100, 1_000, 2_000
SUBTASKS = 4


@dataclass
class Subtask:
    number: int
    member: GroupMember
    watermark: int
    status: SubtaskStatus = SubtaskStatus.ACTIVE
    stopped_until: int = 0
    notified: list = field(default_factory=list)


class Job:
    """Subtasks, a coordinator and a network, in steps of 10 ms. `has_restarts`: subtasks restart, and are suspended past the timeout."""

    def __init__(self, seed, loss, max_delay, has_restarts):
        self.random = random.Random(seed)
        self.loss, self.max_delay, self.has_restarts = loss, max_delay, has_restarts
        self.now, self.order, self.in_flight = 0, itertools.count(), []
        self.identities = itertools.count(1)
        self.coordinator = Coordinator(next(self.identities))
        self.subtasks = [self.start(number) for number in range(SUBTASKS)]
        self.suspended_until = 0
        self.highest = None
        self.has_timed_out = False

    def start(self, number, watermark=0):
        config = MemberConfig("g", number, SUBTASKS, SYNC, TIMEOUT, STARTUP)
        return Subtask(number, GroupMember(config, self.now * 1000, self.now), watermark)

    def carry(self, deliver):
        if self.random.random() >= self.loss:
            for _ in range(1 + (self.random.random() < self.loss / 2)):
                heapq.heappush(
                    self.in_flight, (self.now + self.random.randint(0, self.max_delay), next(self.order), deliver)
                )

    def step(self):
        self.now += 10
        while self.in_flight and self.in_flight[0][0] <= self.now:
            heapq.heappop(self.in_flight)[2]()
        if self.now >= self.suspended_until:
            self.has_timed_out |= bool(self.coordinator.expire(self.now))
            for number, response in self.coordinator.take_notifications():
                self.respond(self.subtasks[number], response)
        for subtask in self.subtasks:
            if self.now >= subtask.stopped_until:
                subtask.member.report(
                    SubtaskReport(
                        subtask.number,
                        subtask.status,
                        subtask.watermark if subtask.status is SubtaskStatus.ACTIVE else None,
                    )
                )
                self.send(subtask)
        self.check()

    def send(self, subtask):
        request = subtask.member.prepare_request(self.now)
        if request is not None:
            self.carry(lambda: self.handle(subtask, request))

    def handle(self, subtask, request):
        if self.now >= self.suspended_until:
            response = self.coordinator.handle_heartbeat(request, self.now)
            self.respond(subtask, response)

    def respond(self, subtask, response):
        def deliver():
            if self.now >= subtask.stopped_until and subtask in self.subtasks:
                subtask.member.handle_response(response, self.now)
                self.send(subtask)

        self.carry(deliver)

    def disturb(self):
        draw, subtask = self.random, self.random.choice(self.subtasks)
        kind = draw.random()
        if kind < 0.5:
            subtask.watermark += draw.randint(0, 30)
        elif kind < 0.6:
            subtask.member.await_watermark(subtask.watermark)
        elif kind < 0.64:
            self.coordinator = Coordinator(next(self.identities))
            self.highest = None
        elif kind < 0.68:
            self.suspended_until = self.now + draw.choice([50, 500, 5_000])
        elif self.has_restarts and kind < 0.72:
            subtask.stopped_until = self.now + draw.choice([300, 5_000])
        elif self.has_restarts and kind < 0.76:
            self.subtasks[subtask.number] = self.start(subtask.number, max(0, subtask.watermark - draw.randint(0, 60)))
        elif self.has_restarts and kind < 0.8:
            subtask.status = draw.choice([SubtaskStatus.IDLE, SubtaskStatus.ACTIVE])

    def check(self):
        value = self.coordinator.global_watermark
        if value is None:
            return
        known = (self.coordinator.generation, value)
        assert self.highest is None or known >= self.highest, "the global watermark fell"
        self.highest = known
        if not self.has_restarts and not self.has_timed_out:
            assert value <= min(each.watermark for each in self.subtasks), (
                "the global watermark is above that of a subtask that counts"
            )

    def end_faults(self):
        self.loss, self.max_delay, self.suspended_until = 0.0, 20, 0
        for subtask in self.subtasks:
            subtask.stopped_until = 0
            subtask.status = SubtaskStatus.ACTIVE
        for _ in range((STARTUP + TIMEOUT) // 10):
            self.step()


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 0.4]), st.sampled_from([0, 30, 400]), st.booleans())
def test_the_global_watermark_never_falls_and_in_the_end_all_agree(seed, loss, max_delay, has_restarts):
    job = Job(seed, loss, max_delay, has_restarts)
    for _ in range(600):
        if job.random.random() < 0.3:
            job.disturb()
        before = [(each, each.member.group.global_watermark) for each in job.subtasks]
        job.step()
        assert all(value is None or each.member.group.global_watermark >= value for each, value in before), (
            "the global watermark fell in a subtask"
        )
    known = max((each.member.group.global_watermark or 0 for each in job.subtasks), default=0)
    job.end_faults()

    value = job.coordinator.global_watermark
    assert value is not None
    assert value >= min(each.watermark for each in job.subtasks)
    assert value >= known, "the coordinator has the highest value that a subtask knew"
    assert [each.member.group.global_watermark for each in job.subtasks] == [value] * SUBTASKS
    assert not any(each.member.is_replaced or each.member.group.timed_out_subtasks for each in job.subtasks)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_a_waiting_subtask_is_notified_without_a_heartbeat(seed):
    job = Job(seed, 0.0, 0, has_restarts=False)
    for _ in range(100):
        job.step()
    job.random.choice(job.subtasks).watermark += 500
    waiting = next(each for each in job.subtasks if each.watermark)
    waiting.member.await_watermark(100)
    for _ in range(4):
        job.step()
    for subtask in job.subtasks:
        subtask.watermark += 150
    for _ in range(6):
        job.step()

    assert waiting.member.group.global_watermark >= 100
