"""The runtime parts that every server process uses: clock, event queue, fatal errors, logging and tracing."""
