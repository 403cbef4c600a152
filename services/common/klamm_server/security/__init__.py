"""The security of a server: encryption, authentication, authorization and the audit.

server_tls      the keys and certificates of a listener, which may change; `listeners_tls` has those of all listeners
node_principals the principals that may act as each server
sasl            the SASL mechanisms with which clients authenticate
acls            authorization of principals by access control lists
operations      the operations for which each call needs a right
gate            finds the principal of each gRPC call, by `peer_principals`; `configured` makes the configured gate
audit           counts audit events and makes lines of them; `auditor` writes the lines to `audit_log`, and decisions to
                `authorizer_log`
session         the checks of the caller's rights, which handlers call
"""
