"""The controller's RPCs, one module per family of calls. Each call decodes its request, submits it, awaits the decision
and encodes the response."""
