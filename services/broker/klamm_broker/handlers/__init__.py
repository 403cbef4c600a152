"""What brokers do for a request, whichever door it came through. Both doors call these; they know neither, and speak in
values of their own: no protobuf, no Kafka frames."""
