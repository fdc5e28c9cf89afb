"""The global watermark over TCP: a server for any number of jobs, and the client that is a subtask's tracker. Start at `server.py`.

`protocol` has the frames and the authentication, `group_registry` keeps a coordinator for each group, `server` and `server_connection`
serve, `client` and `client_connection` report.
"""
