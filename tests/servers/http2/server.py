"""An HTTP/2 server on real sockets. It sends headers for every request, and then what a test sends through it."""

import asyncio
from contextlib import asynccontextmanager

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived, StreamReset, WindowUpdated
from h2.settings import SettingCodes


class ServerConnection(asyncio.Protocol):
    """One connection, as the server sees it."""

    def __init__(self, server):
        self.server = server
        self.h2 = H2Connection(H2Configuration(client_side=False))
        self.streams = []
        self.resets = []
        self.silent = False

    def connection_made(self, transport):
        self.transport = transport
        self.server.connections.append(self)
        self.h2.initiate_connection()
        self.h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: self.server.streams})
        self.flush()

    def data_received(self, data):
        if self.silent:
            return
        for event in self.h2.receive_data(data):
            if isinstance(event, RequestReceived):
                self.streams.append(event.stream_id)
                self.h2.send_headers(event.stream_id, [(":status", "200"), ("x-amzn-requestid", "r")])
            elif isinstance(event, StreamReset):
                self.resets.append((event.stream_id, int(event.error_code)))
            elif isinstance(event, WindowUpdated) and self.server.flood:
                self.send_all_allowed(event.stream_id)
        self.flush()

    def send_all_allowed(self, stream_id):
        """Send all that the windows allow on a stream."""
        while stream_id and stream_id in self.streams and (room := self.h2.local_flow_control_window(stream_id)):
            self.h2.send_data(stream_id, bytes(min(room, self.h2.max_outbound_frame_size)))
            self.server.sent[stream_id] = self.server.sent.get(stream_id, 0) + min(room, 16384)

    def send(self, stream_id, data, end=False):
        self.h2.send_data(stream_id, data, end_stream=end)
        self.flush()

    def flush(self):
        if data := self.h2.data_to_send():
            self.transport.write(data)


class Http2Server:
    """Its connections and what was sent; `flood`: it sends as much on every stream as the windows allow."""

    def __init__(self, streams, flood):
        self.streams = streams
        self.flood = flood
        self.connections = []
        self.sent = {}
        self.url = ""


@asynccontextmanager
async def http2_server(streams=100, flood=False):
    server = Http2Server(streams, flood)
    listening = await asyncio.get_running_loop().create_server(lambda: ServerConnection(server), "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listening.close()
        for peer in server.connections:
            peer.transport.abort()
        await listening.wait_closed()
