"""The parts of `tests/chaos/run.py`, which strikes real processes with real faults."""
