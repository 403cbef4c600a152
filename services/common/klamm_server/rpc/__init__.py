"""The servers' part of RPC: serving calls, and calling other servers. It extends `klamm.rpc`.

transport, grpc_server      the interface with which a server listens, and its implementation for gRPC
node_guard                  checks the callers of calls between servers by node.principals
server                      serves the services of a process at all its listeners; `refusals` maps errors to statuses
other_services              tells clients which servers have the services that this one does not have
call_logins                 logs clients in at listeners that require it, and finds the user of every other call
channels                    keeps one connection per server of a kind; `coordinator_channels` is for coordinators
controllers                 holds the addresses of the controllers; `controller_channel` calls the active one
retries                     counts and logs failed attempts
health_watch                waits until the server of another process serves
"""
