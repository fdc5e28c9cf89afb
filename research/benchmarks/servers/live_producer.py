"""A process that puts records of 200 B on `live` at an even pace and stamps each with the time of its call: URL RECORDS_A_SECOND SECONDS.

Prints the milliseconds that its calls took, as percentiles. A bare socket and bodies joined from prepared parts cost almost nothing.
"""

import json
import socket
import struct
import sys
import time
from base64 import b64encode

from benchmarks.figures.percentiles import percentiles

RECORDS_A_CALL = 50
ENTRY = '{"Data":"%s","PartitionKey":"key-%d"}'
REST = b64encode(bytes(191)).decode()


def body_of(call):
    """Stamped now; nine bytes make whole base64 groups, so that the rest need not be encoded again."""
    data = b64encode(struct.pack("!qx", time.monotonic_ns())).decode() + REST
    entries = ",".join([ENTRY % (data, call * RECORDS_A_CALL + n) for n in range(RECORDS_A_CALL)])
    return f'{{"StreamName":"live","Records":[{entries}]}}'.encode()


def put(connection, body):
    head = "POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: Kinesis_20131202.PutRecords\r\n"
    head += f"Content-Type: application/x-amz-json-1.1\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    answer = connection.recv(65_536)
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert b" 200 " in head[:20], answer
    left = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]) - len(rest)
    while left:
        left -= len(connection.recv(left))


def main(url, records_a_second, seconds):
    host, port = url.removeprefix("http://").split(":")
    calls = int(records_a_second) // RECORDS_A_CALL * int(seconds)
    took = []
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.monotonic()
        for call in range(calls):
            due = began + call * RECORDS_A_CALL / int(records_a_second)
            time.sleep(max(0.0, due - time.monotonic()))
            called = time.monotonic()
            put(connection, body_of(call))
            took.append((time.monotonic() - called) * 1000)
        rate = calls * RECORDS_A_CALL / (time.monotonic() - began)
    print(json.dumps({"rate": rate, **percentiles(took)}))


main(*sys.argv[1:])
