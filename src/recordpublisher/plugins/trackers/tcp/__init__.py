"""The global watermark over TCP: a server for any number of jobs, and the client that is a subtask's tracker. Start at `server.py`.

`protocol.py` has the frames and the authentication, `group_registry.py` the coordinator of each group. `server.py` and
`server_connection.py` are the server's side, `client.py` and `client_connection.py` the client's side. `tls.py` builds the TLS contexts of
both.
"""
