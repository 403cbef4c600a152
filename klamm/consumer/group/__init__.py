"""The parts that members of both group protocols share: events and effects, identity, reports of rebalances."""
