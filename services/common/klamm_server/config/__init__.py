"""Settings of servers and topics: what there is, what a file or the environment says, what is refused."""
