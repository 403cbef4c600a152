"""Consumption with several threads: a consumer in each thread, or one consumer and a pool of workers."""
