"""The outage that this library must not repeat, replayed with real processes: by Flink's old rule, and by ours."""
