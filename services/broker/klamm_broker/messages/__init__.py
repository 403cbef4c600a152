"""Messages of the Broker service that arrive at both kinds of listeners.

produce.py   reads Produce requests, and writes their answers
nodes.py     servers with the addresses that the caller can dial
"""
