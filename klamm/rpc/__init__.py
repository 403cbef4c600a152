"""Calls to servers: how a caller dials, waits, fails and is cancelled, whichever transport carries the calls.

    transport       what a transport is: channels and calls. Everything here and in the services is written against it
    grpc_transport  the transport over gRPC: with `klamm_server.rpc.grpc_server` the only place that knows gRPC
    handshakes      why a handshake of TLS failed
    client_tls      a client's keys and certificates, read again when they change
    client_sasl     the user that a client logs in as; sasl_sources has the passwords and tokens
    login           one login; login_channel logs in before the calls of a channel, and again when the session ends
    options         how connections are kept: one table
    connection      one server: its stubs, whose failures are this project's errors
    status          the status of a failed call at a transport, and the error code that it becomes
    cancellation    whether the calling task was cancelled
    retrying        retries of an action until it succeeds
    tracing_interceptors    spans of calls

If a caller is cancelled during a call, it always gets CancelledError. gRPC turns a cancellation at the end of a call
into a status, and a caller that retries would then continue for ever."""

import os

# gRPC reads the variable when it is loaded. By default, it logs each failed handshake without a limit. Errors of calls
# are in their status.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
