"""The handlers of a broker's requests. Both doors, gRPC's and Kafka's, call them.

Handlers know neither door. Their arguments and results are values of their own, without protobuf and Kafka frames."""
