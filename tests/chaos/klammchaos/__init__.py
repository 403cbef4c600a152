"""Real processes under real faults: what `tests/chaos/run.py` is made of."""
