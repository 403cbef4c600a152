"""`klamm cluster balance`: `plan` decides from measured load what moves, `measure` reads the load, `running` moves."""
