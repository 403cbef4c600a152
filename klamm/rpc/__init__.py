"""Calls to servers: how a caller dials, waits, fails and is cancelled, whichever transport carries the calls.

    transport       the interface of a transport, with channels and calls. All other modules and services use only it
    grpc_transport  the transport over gRPC. Only it and `klamm_server.rpc.grpc_server` import gRPC
    handshakes      finds out why a TLS handshake failed
    client_tls      loads a client's keys and certificates, and loads them again when the files change
    client_sasl     logs a client in; sasl_sources provides the passwords and tokens
    login           does one login; login_channel logs in before a channel's first call, and again when the session ends
    options         the table of gRPC's options for connections (keepalive, message sizes)
    connection      the stubs of one server. A failed call raises this project's errors
    status          translates the status of a failed call to an error code
    cancellation    tells whether the calling task was cancelled
    retrying        repeats an action until it succeeds
    tracing_interceptors    record a span for each call

If a caller is cancelled during a call, it always gets CancelledError. gRPC turns a cancellation at the end of a call
into a status, and a caller that retries would then continue for ever."""

import os

# gRPC reads the variable when it is loaded. By default, it logs each failed handshake without a limit. Errors of calls
# are in their status.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
