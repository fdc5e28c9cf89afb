"""Reports and alarms of workers, as the replay reads them."""


def shard_report(watermark=None, **more):
    return {
        "stage": "READING",
        "watermark": watermark,
        "nextWatermark": None,
        "idle": False,
        "held": False,
        "records": 0,
        "heldMs": 0,
        "excluded": False,
        "lateAfterIdle": 0,
        **more,
    }


def report(at, worker, shards, value=None, rows=None, repeated=0):
    metrics = {"worker": {"globalWatermark": value}, "shards": shards}
    return {"at": at, "worker": worker, "rows": rows or {}, "repeated": repeated, "metrics": metrics}


def alarm(at, worker, subject, is_over=False):
    document = {"kind": "unread", "subject": subject, "lasting_ms": 4_000, "reason": "why", "is_over": is_over}
    return {"at": at, "worker": worker, "alarm": document}
