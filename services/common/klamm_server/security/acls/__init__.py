"""Authorization by access control lists, as Kafka's StandardAuthorizer decides.

authorizer    the rules, over the index that every metadata image has (`klamm_server.metadata.acl_index`)
decisions     those of one session, kept for as long as the access control lists stay as they are
hosts         which addresses the host of an entry means
"""
