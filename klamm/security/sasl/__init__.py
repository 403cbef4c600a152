"""SASL as pure machines: messages in, messages out; randomness is an argument. Below: what a client says, then the
messages and keys that servers use as well."""
