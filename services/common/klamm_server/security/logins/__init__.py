"""Logins at the listeners of a server: what both protocols share, and what of it takes time. `sasl` has the rules.

From the highest down: login; logins; tokens; checks and jwks."""
