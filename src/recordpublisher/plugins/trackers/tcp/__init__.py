"""The global watermark over TCP: a server for any number of jobs, and the client that is a subtask's tracker.

`framing` cuts the stream into messages, `greeting` checks the token, `offices` keep a coordinator for each group, `server` and `visitor`
serve, `client` and `link` report.
"""
