"""What a server's process rests on: clock, event queue, faults, logging, tracing."""
