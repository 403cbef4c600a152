"""The records that the coordinator writes into `__consumer_offsets`: Kafka's schemas and their encodings."""
