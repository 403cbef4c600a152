"""The RPCs, one module per family: decode, submit, await, encode."""
