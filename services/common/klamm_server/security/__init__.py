"""What each principal may do in a cluster, and how others are kept from reading it.

server_tls      the keys and certificates of a listener, which may change; `listeners_tls` those of all of a server's
node_principals which principal speaks for which server
sasl            how clients prove who they are
acls            what principals may do, as access control lists say
operations      what each call asks of its caller
gate            whose call of the gRPC API it is, by `peer_principals`; `configured` makes the one that settings want
audit           who did what: events, counted and written down; `auditor` brings them to `audit_log`
session         what its caller may do, as handlers ask it
"""
