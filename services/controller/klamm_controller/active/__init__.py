"""The work of the active controller: it decides on requests, ends the sessions of silent nodes, balances leaders, and
sweeps partitions."""
