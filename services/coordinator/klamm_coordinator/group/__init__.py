"""Consumer groups: Kafka's classic protocol as a pure state machine."""
