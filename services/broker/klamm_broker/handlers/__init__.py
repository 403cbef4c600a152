"""The handlers of a broker's requests. The gRPC server and the Kafka server both call them.

Handlers do not depend on the protocol. Their arguments and results are plain Python values, without protobuf messages
and Kafka frames."""
