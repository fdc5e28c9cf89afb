"""Schedules of faults and reshards that are played to a consumer, and what is said of it afterwards. Start reading in schedule.py."""
