"""`klamm doctor` finds problems of this machine and of a cluster, and gives advice.

Checks of values are pure, and other modules gather the values. Some settings of the kernel are not checked, because
they make no difference to Klamm: vm.overcommit_memory, transparent huge pages, vm.max_map_count (logs are read and
written, not mapped) and swappiness.
"""
