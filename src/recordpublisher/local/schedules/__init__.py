"""Schedules of faults and reshards that are played while a client reads, and a judgement of what the client has read. Start at
schedule.py.
"""
