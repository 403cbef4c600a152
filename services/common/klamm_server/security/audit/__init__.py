"""The audit records logins, changes, and the decisions of the authorizer with the rule that decided.

events     the events that are recorded
ocsf       how it is written: a JSON object of the Open Cybersecurity Schema Framework
tallies    equal events of a minute, counted
backlog    lines that wait for an output, bounded
trail      these together: events in, lines out
changes    what the answer to a call of management says was changed
decisions  what a session tells of the decisions about it

All of it is pure; `klamm_server.security.auditor` has the clock and the outputs.
"""
