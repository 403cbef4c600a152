"""What every kind of shard has in common: the runtime that rules are given to.

shard_runtime.py   `ShardRuntime`: one step after the other, writes in order, answers parked behind them, timers
rules.py           `Rules`: what a kind of shard has to be, to be run
turn.py            `Turn`: what rules may ask for in a step
write_queue.py     writes that the log has not decided yet, with what is parked behind each
replayer.py        loading: a log's batches into rules
effects.py events.py log_write.py timers.py settings.py shard_topic.py   the words for it
"""
