"""The controller's decisions, as pure functions: each turns a request and an image into records and a reply, without
I/O."""
