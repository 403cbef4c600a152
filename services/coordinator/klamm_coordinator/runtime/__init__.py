"""The runtime that runs the rules of every kind of shard.

shard_runtime.py   `ShardRuntime`: one step after the other, writes in order, answers parked behind them, timers
rules.py           `Rules`: the interface of one kind of shard
turn.py            `EventContext`: the effects that rules may ask for in a step
write_queue.py     writes that the log has not decided yet, with the answers that are parked behind each
replayer.py        loading: replays the log's batches into rules
effects.py events.py log_write.py timers.py settings.py shard_topic.py   the types that these use
"""
