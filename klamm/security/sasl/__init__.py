"""SASL as pure state machines: messages in, messages out; randomness is an argument. This package has the client's
side, and the messages and keys that servers use too."""
