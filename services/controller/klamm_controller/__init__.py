"""The controller: owns the cluster's metadata, and everything that is decided about it.

`metadata/` decides (pure), `log/` makes decisions durable, `controller.py` joins them on one queue, `rpc/` is how
others reach it, `server.py` puts it together.
"""
