"""Rules broken on purpose, one at a time: the exploration of one shape finds each.

Each rule stands with the shape where that is found and the place in the library; below it what stands there, and what
instead.
"""

from tests.model.break_of import breaks

BREAKS = breaks(r"""
the urgent take no turns | urgent at one | reservoir.wait_queue:Turns._ends
    waiter.cost / priority, -priority => waiter.cost, waiter.number
the urgent wait until no other does | urgent at one | reservoir.wait_queue:WaitQueue._next
    [first, *( => [first] if first else [*(
the older of two quotas counts | two quotas | bucket.bucket:Bucket._agree
    since >= self._since) => since <= self._since)
another quota fills the bucket | another quota | bucket.bucket:Bucket._reconfigure
    share * band.burst, => band.burst,
a smaller burst has no room for what is leased | an override that ends | bucket.bucket:Bucket._reconfigure
    max(0, band.burst - self._table.outstanding) => band.burst
who goes by another quota asks by the old one | another quota | reservoir.rule_in_force:RuleInForce.reconsider
    state.own, state.is_outdated = own, True => state.is_outdated = True
an override that has ended counts on | an override that ends | quota.overrides.override:Override.has_ended
    self.until <= now => self.until <= now - 1
a bucket goes by the code beside an override | an override that ends | bucket.bucket:Bucket._agree
    is_above = rank > self._rank or => is_above = rank < self._rank or
a paused bucket admits on | paused | bucket.bucket:Bucket.pause
    self._levels[gate] = min(self._levels[gate], -lasting * self._bands[gate].rate) => pass
what comes back ends a pause earlier | paused, waits | bucket.bucket:Bucket._room
    if self._left and i == self._gate: => if False:
a grant that was under way is spent in a pause | paused | reservoir.lease:Lease.credit
    fetch.sent <= self.void_before => fetch.sent < self.void_before
who pauses keeps what it has leased | paused | reservoir.lifecycle:Lifecycle.pause
    state.lease.take_all() => pass
a pause that is lifted pays what is owed | dry, paused, resumed | bucket.bucket:Bucket.resume
    min(0, -self._table.outstanding) => 0
what a pause owes is owed on when it is lifted | paused, resumed | bucket.bucket:Bucket.resume
    max(self._levels[gate], min(0, -self._table.outstanding)) => self._levels[gate]
a bucket is filled over what is leased | filled | bucket.bucket:Bucket.reset
    band.burst - self._table.outstanding => band.burst
a clock that steps back is followed | the clock of the store steps back | bucket.spendable:SpendableBucket._tell
    max(self._now, now - self._epoch) => now - self._epoch
a spend follows a clock that steps back | the clock of the store steps back | bucket.spendable:SpendableBucket.charge
    max(self._now, now - self._epoch) => now - self._epoch
what comes back is credited as often as it comes | refunded, a message is lost | bucket.bucket:Bucket.give_back
    if instance and back.seq <= instance.seq: => if False:
a copy of a give-back is credited | refunded, a message is lost | bucket.bucket:Bucket.give_back
    back.seq <= instance.seq => back.seq < instance.seq
a lease that ends fills the bucket at once | stopped | bucket.bucket:Bucket._refill_to
    self._table.settle(instance, 0) =>
    self._table.settle(instance, 0); self._levels = [level + instance.granted for level in self._levels]
what comes back fills over what is leased | refunded | bucket.bucket:Bucket._room
    band.burst - self._table.outstanding => band.burst
what comes back fills over the burst | refunded, a message is lost | bucket.bucket:Bucket._credit
    level + min(tokens, room) => level + tokens
an ask leaves no number | one leases, a message is lost | bucket.bucket:Bucket._answer
    instance.held, ask.seq, self._now, 0 => instance.held, instance.seq, self._now, 0
more is granted than is there | three wait at two | bucket.bucket:Bucket._offer
    granted = min(granted, level, fair, max(ask.queued, ahead)) =>
    granted = min(granted, level + 1, fair + 1, max(ask.queued, ahead))
a later grant begins at once | three wait at two | bucket.bucket:Bucket._answer
    return self._grant(quota, instance, granted, kept, starts_in, 0) =>
    return self._grant(quota, instance, granted, kept, 0, 0)
what is leased stays in the bucket | one leases | bucket.bucket:Bucket._lend
    self._levels = [level - granted for level in self._levels] => pass
all that is granted counts as spent | two lease | bucket.bucket:Bucket._lend
    if is_spent and starts == self._now and instance.held == 0: => if True:
a lease lasts longer than the bucket counts | stopped | bucket.bucket:Bucket._grant
    lease=max(0, instance.expires - self._now - starts_in) / _SECOND =>
    lease=2 * max(0, instance.expires - self._now - starts_in) / _SECOND
waits are told too short | one spends | bucket.fair_share:rounded
    return math.ceil(min(wait, LONGEST)) + 1 => return math.ceil(min(wait, LONGEST) * 0.9)
waits are told too long | one spends | bucket.fair_share:rounded
    return math.ceil(min(wait, LONGEST)) + 1 => return math.ceil(min(wait, LONGEST) * 2) + 1
a spend is charged where instances lease | one spends, one leases | bucket.spendable:SpendableBucket.offer
    if not self._is_plain(instant): => if False:
a spend charges nothing | one spends | bucket.spendable:SpendableBucket.charge
    level - spend.cost for level => level for level
a spend is charged before its tokens are there | one spends | bucket.spendable:SpendableBucket.offer
    told = Spent(wait <= 0, => told = Spent(wait <= 600_000,
a spend is refused though the tokens are there | one spends | bucket.spendable:SpendableBucket.offer
    told = Spent(wait <= 0, => told = Spent(wait < 0,
a plain bucket is refilled twice | one spends | bucket.spendable:SpendableBucket._shrink
    self._time = self._now - math.floor( => self._time = self._now - 100_000 - math.floor(
refill goes on over what is leased | two lease | bucket.spendable:SpendableBucket._refill
    room = band.burst - outstanding - level => room = band.burst - level
a forked child keeps its parent's tokens | forked, leases | keyspace.keyspace:Keyspace.disown
    entry.tokens.disown()\n        self._entries.clear() => pass
a forked child asks in its parent's name | forked, leases | keyspace.keyspace:Keyspace.disown
    self._entries.clear() => pass
a key handle of a forked child spends its parent's tokens | forked, leases | keyspace.keyspace:Keyspace.disown
    entry.tokens.disown() => pass
an instance that left keeps its share | closed | bucket.spendable:InstanceTable.forget
    if instance.weight > 0: => if False:
service is not counted | one leases | bucket.spendable:InstanceTable.serve
    self.lasts, instance.last = self.lasts + instance.weight * (at - instance.last), at => instance.last = at
a lease counts from its answer | stopped | reservoir.lease:Lease.credit
    self._tokens.expires = fetch.sent + => self._tokens.expires = now +
pending tokens begin at once | three wait at two | reservoir.lease:Lease.advance
    if self.pending and now >= self.starts: => if self.pending:
free tokens are for whoever comes while others wait | three wait at one | reservoir.lease:Lease.reserve_for
    if not waiters: => if True:
more is put back than was leased | refunded | reservoir.lease:Lease.put_back
    max(0, self._recorded - self.held - self.pledged) => cost
an ask does not report what is held | one leases | reservoir.lease:Lease.report
    self._recorded = 0 if self.borrowed else self.held + self.pledged => self._recorded = 0
who comes last is served first | three wait at one | reservoir.wait_queue:WaitQueue._first_of_usual
    return first\n            heappop => return self.waiters[max(self.waiters)]\n            heappop
nobody takes the lead after the leader | three wait at one | reservoir.wait_queue:WaitQueue.wake_leader
    self.wake(leader) => pass
who is served is not woken | three wait at one | reservoir.wait_queue:WaitQueue.dismiss
    self.wake(waiter) => pass
an answer counts that nobody waits for | interrupted | reservoir.reservoir:Reservoir.granted
    if state.in_flight is not fetch: => if False:
a failed ask stays in flight | one leases, a message is lost | reservoir.requests:Requests.lost
    self._state.in_flight = None\n        for => for
refused callers are not counted | one spends | reservoir.admission:QueueAdmission.refuse
    state.tokens.refused += waiter.cost => pass
loose tokens are not spent | one leases | reservoir.tokens:FreeTokens.take
    self.free, self._singly = left, cost == 1 => self._singly = cost == 1
spends are not counted | one spends | keyspace.spending:Spending.hear_of
    tally[1] += each.message.cost => pass
a spend does not lower what is admitted | one spends | keyspace.spending:is_charged
    all(map(IS_CHARGED, outcome)) => True
refunds are forgotten with the instance | refunded | bucket.bucket:Bucket._settle
    self._known = instance.known = self._now + REMEMBERED => self._table.forget(back.instance, instance, self._now)
leases that end stay outstanding | one spends | bucket.bucket:Bucket._refill_to
    self._table.settle(instance, 0) => pass
""")
# Of calls at several keys: all keys are charged, or none.
BREAKS |= breaks(r"""
a call that is refused keeps the tokens of its other keys | two keys by slot | keyspace.several:SeveralKeys._try
    self._leave()\n            raise\n        except Base => self._held = []\n            raise\n        except Base
what several keys were charged is not confirmed | two keys by slot | keyspace.several:SeveralKeys._confirm
    caller.confirm() => pass
a token counted as spent is gone where another asks first | two keys by slot, three calls | reservoir.lease:Lease.credit
    is_spent = self.may_count_as_spent and => is_spent = False and
a spent token is gone with who leaves it | two keys by slot, three calls | reservoir.lifecycle:Lifecycle.undo
    self._requests.refunds += waiter.cost - back => pass
a refused spend keeps the tokens of the leased key | one key leased, one spent | keyspace.several:FromMemory.spend
    told if told and all(told.values()) else None => told
interrupted spends keep leased tokens | one key leased, one spent, interrupted | keyspace.several:FromMemory.spend
    finally:\n            if admitted is None => finally:\n            if told and admitted is None
tokens that come back are counted as admitted | one key leased, one spent | keyspace.several:FromMemory._put_back
    entry.took_late(cost) => pass
what comes back comes twice | one key leased, one spent | keyspace.several:FromMemory._put_back
    entry.refund(cost) => entry.refund(2 * cost)
what was spent for an interrupted caller is kept | two keys, spent, interrupted | aio.spends:Spends._undo
    if is_charged(outcome): => if False:
a group is charged if one of its buckets has the tokens | two keys, spent | stores.memory:MemoryStore._spent
    if not all(each.is_charged for each in told): => if not any(each.is_charged for each in told):
one bucket of a group is charged | two keys, spent, interrupted | stores.memory:MemoryStore._spent
    zip(buckets, group, strict=True)])\n        for => zip(buckets[:1], group[:1], strict=True)])\n        for
""")
# Of shared limits.
BREAKS |= breaks(r"""
a permit outlasts its lease | one slot, stopped | shared.held_slots:HeldSlots.renew
    int(USED * length) => int(1.2 * length)
slots count from their answer | one slot, stopped | shared.local_slots:LocalSlots.answer
    self.held.renew(ask, reply, sent) => self.held.renew(ask, reply, now)
an answer renews a lease that is over | one slot, stopped | shared.local_slots:LocalSlots.answer
    or self.held.lease.is_over(now) =>
a lease is over a moment late | one slot, stopped | shared.held_slots:SlotLease.is_over
    0 != self.until <= now => 0 != self.until < now
slots of a lease that is over stay lent | one slot, died | bucket.slot_table:SlotTable._seen
    if each.ends > self._now} => }
a claim to slots is believed | one slot, forgotten | bucket.slot_table:SlotTable._seen
    max(0, min(lost, self.limit - self.lent - me.held)) => max(0, lost)
permits whose slots are gone are not lost | one slot, forgotten | shared.held_slots:HeldSlots._learn
    while len(self.places) > max(0, self.count): => while False:
a slot that is gone goes back | one slot, forgotten | shared.held_slots:HeldSlots._learn
    self._leaving = min(self._leaving, self.count - len(self.places)) => pass
tokens of the store stand still | one slot | bucket.slot_table:SlotTable._renew_token
    max(self.token + 1, self._now // TICK) => max(self.token, self._now // TICK)
tokens go back with the clock | one slot, the clock steps back | bucket.slot_table:SlotTable._renew_token
    max(self.token + 1, self._now // TICK) => self._now // TICK
more slots are lent than there are | one slot | bucket.slot_table:SlotTable._share_out
    while self.lent < self.limit => while self.lent <= self.limit
free slots are not lent | one slot | bucket.slot_table:SlotTable._share_out
    while self.lent < self.limit => while self.lent < self.limit - 1
more is lent ahead than is free | two slots | bucket.slot_table:SlotTable._share_out
    max(0, self.limit - self.lent) // (len(self._all) + 1) => self.limit
a push to an old lease counts | one slot at two, stopped | shared.held_slots:HeldSlots.hear
    push.instance != self.name or =>
an answer takes away what a push brought | one slot | shared.held_slots:HeldSlots.renew
    reply.granted if reply.fresh else max(self._granted, reply.granted) => reply.granted
a slot that went back is held | one slot | shared.held_slots:HeldSlots.give_back
    self.returned += self.surplus(is_closing) => self.surplus(is_closing)
numbers of permits stand still | one slot | shared.held_slots:HeldSlots.take
    min(self._sequence + 1, => min(self._sequence,
numbers of permits begin anew | one slot | shared.held_slots:HeldSlots._learn
    self.last, self._sequence = told.token, 0 => self._sequence = 0
a lease that is over has free slots | one slot at two, stopped | shared.held_slots:HeldSlots.has_free
    and now < self.lease.until and not self.lease.ended =>
who comes last has the permit first | one slot, a message is lost | concurrency.queue:Waiting.heads
    self.queue.order == "lifo" => self.queue.order != "lifo"
who does not wait waits for ever | one slot | shared.local_slots:LocalSlots.answer
    if self.line.patient < len(self.line): => if False:
a lease is over at the store first | one slot | bucket.slot_table:SlotTable._seen
    self._now + ask.lease, ask.weight => self._now + ask.lease // 3, ask.weight
one slot, two permits | one slot | shared.held_slots:HeldSlots.has_free
    len(self.places) < self._granted => len(self.places) <= self._granted
a permit that ends keeps its slot | one slot | shared.held_slots:HeldSlots.end
    if self.places.pop(place, place) is not None: => if place not in self.places:
who gives up keeps the line | one slot, given up | concurrency.queue:Waiting.remove
    line.pop(waiter, None) => pass
who is told nothing never asks again | one slot, a message is lost | shared.local_slots:LocalSlots.fail
    self.due = min(self.due, retry) => pass
an ask is not repeated for who came late | one slot | shared.local_slots:LocalSlots.line_up
    if not waiter.is_patient or len(self.line) >= 2 * self._told: => if False:
an ask forgets what went back | one slot | shared.local_slots:LocalSlots.ask
    returned=held.returned => returned=0
waiters are not told | one slot | shared.local_slots:LocalSlots.ask
    waiting=self.line.patient => waiting=0
a permit of the parent counts in its forked child | one slot, forked | shared.local_slots:forget
    slots.held.lease.ended = slots => slots
the store forgets who waits | one slot | bucket.slot_table:SlotTable.lend
    if me.held == me.wants == 0: => if me.held == 0:
""")
