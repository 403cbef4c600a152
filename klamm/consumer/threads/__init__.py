"""Several threads: a consumer in each, or one consumer and a pool of workers."""
