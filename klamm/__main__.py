"""`python -m klamm` is the command `klamm`."""

from __future__ import annotations

from klamm_cli.main import main

if __name__ == "__main__":
    main()
