"""Calls to servers: how a caller dials, waits, fails and is cancelled, whichever transport carries the calls.

    transport       what a transport is: channels and calls. Everything here and in the services is written against it
    grpc_transport  the transport over gRPC: with `klamm_server.rpc.grpc_server` the only place that knows gRPC
    handshakes      why a handshake of TLS failed
    client_tls      a client's keys and certificates, read again when they change
    client_sasl     who a client logs in as; sasl_sources has the passwords and tokens
    login           one login; login_channel has the calls of a channel wait for it, and makes another when it ends
    options         how connections are kept: one table
    connection      one server: its stubs, whose failures are this project's errors
    status          what a transport says of a call that failed, and the error code that it comes to
    cancellation    whether the caller is to end
    retrying        trying until it works
    tracing_interceptors    spans of calls

A caller that is cancelled during a call ends with CancelledError, whatever the transport makes of it: gRPC turns a
cancellation that meets the end of a call into a status, and a caller that retries would go on for ever.
"""

import os

# gRPC reads the variable when it is loaded. By default, it logs each failed handshake without a limit. Errors of calls
# are in their status.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
