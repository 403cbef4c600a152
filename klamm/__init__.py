"""Klamm's client library: records, producer, consumer, admin, command line. It knows no service.

The public names below are loaded on first use, so that `import klamm` costs next to nothing.
"""

from __future__ import annotations

import os

from klamm.lazy_names import lazy_names

# gRPC reads the variable when it is imported. Its fork handlers start threads in a child that is about to run another
# program. They sometimes kill the child, because its files are closed under them (Spark's JVM is such a child).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

__getattr__, __dir__, __all__ = lazy_names(globals())
