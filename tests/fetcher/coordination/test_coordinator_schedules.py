"""W6, W9a: random schedules of lost, late and doubled messages, restarts of subtasks and of the coordinator."""

import heapq
import itertools
import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from recordpublisher.fetcher.coordination.coordinator import Coordinator
from recordpublisher.fetcher.coordination.group_member import Membership, Place
from recordpublisher.fetcher.coordination.watermark_tracker import SubtaskReport, SubtaskStatus

SYNC, TIMEOUT, STARTUP = 100, 1_000, 2_000
SUBTASKS = 4


@dataclass
class Subtask:
    number: int
    member: Membership
    watermark: int
    status: SubtaskStatus = SubtaskStatus.ACTIVE
    stopped_until: int = 0
    told: list = field(default_factory=list)


class Job:
    """Subtasks, a coordinator and a network, stepped by 10 ms. `is_rough`: subtasks restart and are suspended beyond the timeout."""

    def __init__(self, seed, loss, slowest, is_rough):
        self.random = random.Random(seed)
        self.loss, self.slowest, self.is_rough = loss, slowest, is_rough
        self.now, self.tickets, self.under_way = 0, itertools.count(), []
        self.identities = itertools.count(1)
        self.coordinator = Coordinator(next(self.identities))
        self.subtasks = [self.start(number) for number in range(SUBTASKS)]
        self.asleep_until = 0
        self.highest = None
        self.has_lost_somebody = False

    def start(self, number, watermark=0):
        place = Place("g", number, SUBTASKS, SYNC, TIMEOUT, STARTUP)
        return Subtask(number, Membership(place, self.now * 1000, self.now), watermark)

    def travel(self, deliver):
        if self.random.random() >= self.loss:
            for _ in range(1 + (self.random.random() < self.loss / 2)):
                heapq.heappush(
                    self.under_way, (self.now + self.random.randint(0, self.slowest), next(self.tickets), deliver)
                )

    def step(self):
        self.now += 10
        while self.under_way and self.under_way[0][0] <= self.now:
            heapq.heappop(self.under_way)[2]()
        if self.now >= self.asleep_until:
            self.has_lost_somebody |= bool(self.coordinator.look(self.now))
            for number, answer in self.coordinator.due():
                self.answer(self.subtasks[number], answer)
        for subtask in self.subtasks:
            if self.now >= subtask.stopped_until:
                subtask.member.state(
                    SubtaskReport(
                        subtask.number,
                        subtask.status,
                        subtask.watermark if subtask.status is SubtaskStatus.ACTIVE else None,
                    )
                )
                self.send(subtask)
        self.check()

    def send(self, subtask):
        said = subtask.member.due(self.now)
        if said is not None:
            self.travel(lambda: self.take(subtask, said))

    def take(self, subtask, said):
        if self.now >= self.asleep_until:
            answer = self.coordinator.take(said, self.now)
            self.answer(subtask, answer)

    def answer(self, subtask, answer):
        def deliver():
            if self.now >= subtask.stopped_until and subtask in self.subtasks:
                subtask.member.hear(answer, self.now)
                self.send(subtask)

        self.travel(deliver)

    def disturb(self):
        draw, subtask = self.random, self.random.choice(self.subtasks)
        what = draw.random()
        if what < 0.5:
            subtask.watermark += draw.randint(0, 30)
        elif what < 0.6:
            subtask.member.wait_for(subtask.watermark)
        elif what < 0.64:
            self.coordinator = Coordinator(next(self.identities))
            self.highest = None
        elif what < 0.68:
            self.asleep_until = self.now + draw.choice([50, 500, 5_000])
        elif self.is_rough and what < 0.72:
            subtask.stopped_until = self.now + draw.choice([300, 5_000])
        elif self.is_rough and what < 0.76:
            self.subtasks[subtask.number] = self.start(subtask.number, max(0, subtask.watermark - draw.randint(0, 60)))
        elif self.is_rough and what < 0.8:
            subtask.status = draw.choice([SubtaskStatus.IDLE, SubtaskStatus.ACTIVE])

    def check(self):
        value = self.coordinator.value
        if value is None:
            return
        known = (self.coordinator.generation, value)
        assert self.highest is None or known >= self.highest, "it went back"
        self.highest = known
        if not self.is_rough and not self.has_lost_somebody:
            assert value <= min(each.watermark for each in self.subtasks), "somebody who counts was passed over"

    def calm_down(self):
        self.loss, self.slowest, self.asleep_until = 0.0, 20, 0
        for subtask in self.subtasks:
            subtask.stopped_until = 0
            subtask.status = SubtaskStatus.ACTIVE
        for _ in range((STARTUP + TIMEOUT) // 10):
            self.step()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 0.4]), st.sampled_from([0, 30, 400]), st.booleans())
def test_nothing_goes_back_and_when_the_storm_is_over_everybody_knows(seed, loss, slowest, is_rough):
    job = Job(seed, loss, slowest, is_rough)
    for _ in range(600):
        if job.random.random() < 0.3:
            job.disturb()
        before = [(each, each.member.value) for each in job.subtasks]
        job.step()
        assert all(value is None or each.member.value >= value for each, value in before), "a subtask's value went back"
    known = max((each.member.value or 0 for each in job.subtasks), default=0)
    job.calm_down()

    value = job.coordinator.value
    assert value is not None
    assert value >= min(each.watermark for each in job.subtasks)
    assert value >= known, "what was known to somebody who lives is known to all"
    assert [each.member.value for each in job.subtasks] == [value] * SUBTASKS
    assert not any(each.member.is_replaced or each.member.left_out for each in job.subtasks)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_whoever_waits_hears_without_a_heartbeat(seed):
    job = Job(seed, 0.0, 0, is_rough=False)
    for _ in range(100):
        job.step()
    job.random.choice(job.subtasks).watermark += 500
    waiting = next(each for each in job.subtasks if each.watermark)
    waiting.member.wait_for(100)
    for _ in range(4):
        job.step()
    for subtask in job.subtasks:
        subtask.watermark += 150
    for _ in range(6):
        job.step()

    assert waiting.member.value >= 100
