"""The version of Klamm. No other place has it."""

__version__ = "0.1.0"
