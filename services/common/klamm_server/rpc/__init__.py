"""Calls between servers, and serving them: what a server adds to `klamm.rpc`.

transport, grpc_server      what a server listens with; gRPC is one such transport
node_guard                  holds calls between servers to node.principals
server                      the services of a process, at each of its listeners; `refusals` says what a caller is
                            told when one of them raises
call_logins                 logins where a listener wants them, and whose call the others are
channels                    one connection per server of a kind; to coordinators `coordinator_channels`
controllers                 where the controllers are; `controller_channel` asks the one that is active
retries                     attempts that failed, counted and logged
health_watch                waiting for another process's server
"""
