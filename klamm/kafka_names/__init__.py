"""Kafka's names of configurations that a program of Klamm does not read.

- `without_effect` has the names that Klamm accepts, each with the reason why it has no effect.
- `refused` has the names that Klamm refuses, each with the name to write in its place, if there is one.

Servers, clients, the command line, `klamm doctor` and Spark's source and sink all ask these two modules. Both are pure.
"""
