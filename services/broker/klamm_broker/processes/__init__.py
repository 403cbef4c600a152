"""Several broker processes on one host that are run as one: `klamm-broker --processes 8`. `layout` derives the settings
of each process, and `host` runs them."""
