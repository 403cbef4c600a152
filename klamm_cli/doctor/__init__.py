"""`klamm doctor`: what may be wrong on this machine and in a cluster, and what to do about it.

Checks of values are pure; what they look at is gathered apart. Not looked at, for they make no difference to Klamm:
vm.overcommit_memory, transparent huge pages, vm.max_map_count (logs are read and written, not mapped) and swappiness.
"""
