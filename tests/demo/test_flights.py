import pytest

from recordpublisher.demo.producer import SILENT, TAKES_OVER, ProductionSchedule, all_flights, flight_counts, route


@pytest.mark.slow
def test_every_flight_is_sent_in_the_order_of_its_scheduled_departure():
    flights = all_flights()

    assert len(flights) == 336_776
    assert [flight.scheduled for flight in flights] == sorted(flight.scheduled for flight in flights)
    assert sum(not flight.partition_key.startswith(("N", "D")) for flight in flights) >= 2_512


def test_each_carrier_has_its_number_of_flights():
    counts = flight_counts()

    assert {key: counts[key] for key in ("UA", "B6", "EV", "DL", "AA")} == {
        "UA": 58_665,
        "B6": 54_635,
        "EV": 54_173,
        "DL": 48_110,
        "AA": 32_729,
    }


def test_the_silent_shards_flights_go_elsewhere_in_the_second_half():
    key = next(key for key in map(str, range(100)) if route(key, False).quarter == SILENT)

    moved = route(key, True)

    assert moved.quarter == TAKES_OVER
    assert int(moved.explicit_hash_key) * 4 >> 128 == TAKES_OVER


def test_the_schedule_goes_forward_and_ends_at_the_last_flight():
    schedule = ProductionSchedule(1_000, 1_000_000_000, seconds=100, largest_lag_ms=50_000_000)

    times = [schedule.event_time_at(second) for second in range(101)]

    assert times == sorted(times)
    assert times[0] == 1_000
    assert times[-1] >= 1_000_000_000
    assert schedule.lagging_event_time_at(100) >= 1_000_000_000
    assert schedule.lagging_event_time_at(50) < schedule.event_time_at(50) - 40_000_000
