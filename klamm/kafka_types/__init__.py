"""The primitive types of Kafka's messages and schemas: https://kafka.apache.org/protocol#protocol_types.

Numbers have a fixed width and are big endian. Two families differ in how lengths are written:

    classic    string: int16 length, -1 is null    bytes: int32 length    array: int32 count
    flexible   string, bytes, array: unsigned varint of length + 1, 0 is null; each struct ends in tagged fields

KIP-482 says what tagged fields are.
"""
