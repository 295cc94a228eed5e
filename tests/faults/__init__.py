"""Faults: real processes are killed, stopped, cut off and starved; after each the one oracle of `oracle.py` holds.

`make faults` runs all of it, CI what is marked `ci`. Each test proves that its fault landed. `make soak` goes on for
longer: 1,000 random kills over several jobs, with their counts.

| fault | where |
|---|---|
| SIGKILL before and after each write, fsync, link, rename, … of client, worker and reconciler | test_calls |
| ENOSPC, EIO and a read-only disk at each of the same calls, once and from then on | test_calls |
| a file system that is really full, and one that becomes read-only | test_full_disk |
| SIGKILL of node, worker process, submit, resume and beat before and after each command to the broker | \
test_broker_commands |
| SIGKILL of a process after each named step of a shard and of a job | tests/jobs/test_crashes |
| two and three attempts interleaved at every step | tests/jobs/test_races, tests/jobs/test_retry_races |
| a worker process frozen at each step of publishing, or in a forward, that wakes after its lease passed on | \
test_frozen |
| a forward that hangs while its lease thread lives on | test_frozen |
| a worker process or node killed in the midst of a shard, a node told to stop | tests/integration/test_faults |
| connections cut (CLIENT KILL of normal and pubsub) with two workers | tests/integration/test_faults |
| a broker killed and restarted, and one that forgot everything | tests/integration/test_faults, test_outages |
| a broker away for longer than a lease, in the midst and at the end of a shard, and for a minute | test_outages |
| messages delivered again while their shard runs (a short visibility timeout) | test_outages |
| messages that come twice, late or broken | tests/integration/test_queue |
| a tick that fires twice, a beat killed | tests/integration/test_schedule |
| a wall clock that jumps by a day, forth and back | test_outages |
| two `jobctl resume` at once | test_outages |
| two `jobctl run` on one data directory, one of them killed | test_outages |
| a `jobctl run` killed, and one whose broker ends with its owner | tests/integration/test_run |
| SIGKILL at random times of worker processes, nodes, beats, clients and brokers | test_random_kills, soak |
"""
