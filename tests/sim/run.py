"""Runs seeds of a simulation on every core and reports what was found.

    python tests/sim/run.py raft --seeds 5000
    python tests/sim/run.py isr --minutes 30 --start 100000
    python tests/sim/run.py txn --start 42 --seeds 1 --trace 200      one seed again, and its last 200 lines
    python tests/sim/run.py raft --mutation vote-not-persisted        how soon a planted bug is found
    python tests/sim/run.py isr --mutations                         all, each by the seed or the story that finds it

The simulations are a quorum of controllers (raft), a partition (isr), transactions (txn), queries with an exactly-once
sink (batch), consumer groups of KIP-848 (group), groups that change their protocol (mixed-group), retention that waits
for groups (hold) and a partition whose brokers sync before they acknowledge (sync). Ends with status 1 if any seed
violated anything (with --mutation: if none did).
"""

from __future__ import annotations

import sys
from typing import Final

from tests.sim.groupsim.mixed_model import MIXED_GROUP
from tests.sim.groupsim.model import GROUP
from tests.sim.holdsim.model import HOLD
from tests.sim.isrsim.model import ISR
from tests.sim.isrsim.sync_model import SYNC
from tests.sim.kit.runner import main, parse_arguments
from tests.sim.raftsim.model import RAFT
from tests.sim.txnsim.model import BATCH, TXN

MODELS: Final = {model.name: model for model in (RAFT, ISR, TXN, BATCH, GROUP, MIXED_GROUP, HOLD, SYNC)}

if __name__ == "__main__":
    arguments = parse_arguments(__doc__, MODELS)
    sys.exit(main(MODELS[arguments.model], arguments))
