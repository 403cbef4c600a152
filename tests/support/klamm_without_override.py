"""`klamm` without CAP_DAC_OVERRIDE, so that permissions hold for root, too.

Another user would do as well if it could reach the interpreter. Giving up a capability needs none (capabilities(7)).
"""

from __future__ import annotations

import ctypes
import os

from klamm_cli.main import main

_VERSION_3 = 0x20080522
_CAP_DAC_OVERRIDE = 1


def give_up_dac_override() -> None:
    """Drops the capability CAP_DAC_OVERRIDE for this thread and the threads that it starts from now on. Raises
    OSError."""
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)  # of this thread
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable: of the capabilities from 0, then from 32
    libc = ctypes.CDLL(None, use_errno=True)
    for call in (libc.capget, libc.capset):
        if call(header, sets):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        for index in range(3):
            sets[index] &= ~(1 << _CAP_DAC_OVERRIDE)


if __name__ == "__main__":
    give_up_dac_override()
    main()
