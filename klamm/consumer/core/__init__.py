"""The parts of a consumer and how they work together, below the synchronous and the asynchronous interface."""
