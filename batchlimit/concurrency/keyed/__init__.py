"""A concurrency limit for each key: a repository, a user, a tenant.

Theory of operation
-------------------
Promises: what the concurrency limiter promises holds for each key. A key never has two gates. Several keys are acquired
all or none, and callers never wait for each other in a circle. The memory is bounded by `max_keys` and by the calls
under way.

Parts: a limiter has KeyedGates, which find or make the LockedGate of a key. A permit is from the gate of its key, and
is an ordinary Permit or AsyncPermit. `entering` says in which order one caller acquires several keys, and where it may
wait.

A gate is kept in `by_key`, where calls find it without a lock. When more keys come, gates that nobody used since the
last look are kept no longer. A gate with a permit stays alive all the same, since the permit refers to it, and
KeyedGates finds it by a weak reference. When the last permit ends, the gate is gone, and what it counted is added to
its pattern.

At the end of a period the thread of Rounds polls the watchers of all keys. KeyedGates is one of them, polls those of
each key, and passes to each law what its watchers saw. A law that keys share gets that once.
"""
