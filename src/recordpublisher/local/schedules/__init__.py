"""Schedules of faults and reshards that are played to a consumer, and the verdict on it afterwards. Start at schedule.py."""
