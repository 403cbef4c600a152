"""The settings of servers and topics: their definitions, their values from files and the environment, and their
checks."""
