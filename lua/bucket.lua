-- What every script of a bucket begins with: one bucket's state, read.
--
-- KEYS[1] bucket  (a hash; its whole name is one hash tag, so a bucket never spans slots)
-- ARGV[1] quota   (the caller's: rate (tokens/s) and burst (tokens) of each bandwidth, packed doubles)
-- ARGV[2] name    (of the caller's field: h and the name of the host; peek has none)
--
-- The fields of the hash, packed as the formats below say:
--   q           the quota that the bucket obeys, and when it was set
--   s           the levels, and sums over all hosts
--   h and name  what a host holds and when it asked: a field for each host
--   r           for whom tokens are reserved; read only where s says that there is somebody
-- Beyond 64 bytes in one of them a server gives a hash another, larger form: they are shorter up to three bandwidths,
-- or two while a refund is remembered. As text they were longer by half, and their 25 numbers took a quarter of the
-- script's time to spell.
--
-- The promise rests on one invariant: level + outstanding <= burst, for every bandwidth, at all times but while more
-- is leased than a burst that was just lowered.
-- Outstanding counts every leased token that is not reported spent, given back or expired; refill stops there.
-- Times are microseconds of the server since the bucket's epoch (its birth), so that sums of them stay exact.
-- batchlimit/core/bucket.py is the same arithmetic, line for line; tests hold the two against each other.
--
-- The files of a script are its paragraphs, and share its variables: batchlimit/stores/scripts.py says how they follow.
-- Functions that share variables are made anew whenever a script runs: 33 of them took 8 of its 21 us (Redis 7.0).

local LEASE = 1000000  -- the longest lease while the bucket is poor (us)
local SHORTEST = 20000 -- the shortest: an answer that takes longer than its lease brings nothing (us)
local ACTIVE = 1000000 -- a host that asked within this time has a share (us)
local LONGEST = 315360000000 -- ten years (ms): what is longer might overflow a clock or an integer

-- Seven bytes hold 1,100 years of microseconds, and any burst; two a version, which begins anew after 65,535.
local QUOTA = '<I2i7i7'          -- version, since, epoch; then the quota, packed as callers send it
local STATE = '<i7I4i7I3I3dBi6d' -- time, how long ago all hosts were looked at, outstanding, active, weights, lasts,
                                 -- 1 if tokens are reserved, kept (ms), level; then a double for each further level;
                                 -- then, while a refund is remembered, an i7: known, until when
local HOST = '<i7i7i7i7i7i6I2'   -- expires, held, seen, last, granted, seq, weight
local HOST_MORE = '<i7i7'        -- starts, known: left out where they are what they mostly are, seen and over
local RESERVED = '<dd'           -- ends, tokens; then the name of the host's field

local key, quota, name = KEYS[1], ARGV[1], ARGV[2]
local pack, unpack, floor, ceil, min, max = struct.pack, struct.unpack, math.floor, math.ceil, math.min, math.max

local clock = redis.call('TIME')
clock = clock[1] * 1000000 + clock[2]
local field = redis.call('HMGET', key, 'q', 's', name or 'h')
local found, state, entry = field[1], field[2], name and field[3]

-- Without a bucket there is a new one, full, that obeys the caller.
local version, since, epoch, obeyed, renewed = 1, 0, clock, quota, not found
if found then
    version, since, epoch = unpack(QUOTA, found)
    obeyed = string.sub(found, 17)
end

-- A lease is a small part of what the bucket refills in: tokens that a host lost come back soon, and spent ones are not
-- outstanding for long. Where leases last as long as the refill, refill stands still: with 100 ms instead of 20, a
-- bucket of 10 at 100/s admitted 68 % of nine tenths of its rate to 20 hosts, instead of 94 % (simulated).
local rates, bursts, lease = {0}, {0}, LEASE -- tokens/us, tokens, us
for i = 1, #obeyed / 16 do
    local rate, burst = unpack('<dd', obeyed, 16 * i - 15)
    rates[i], bursts[i] = rate / 1000000, burst
    lease = min(lease, 0.4 * burst / rates[i])
end
lease = max(SHORTEST, floor(lease))

local levels, reserved, known = {bursts[1]}, nil, 0
local time, swept, outstanding, active, weights, lasts, kept = 0, 0, 0, 0, 0, 0, 0
if found then
    local is_reserved, at
    time, swept, outstanding, active, weights, lasts, is_reserved, kept, levels[1], at = unpack(STATE, state)
    swept = time - swept
    for i = 2, #rates do levels[i], at = unpack('<d', state, at) end
    if at <= #state then known = unpack('<i7', state, at) end
    if is_reserved == 1 then
        local packed = redis.call('HGET', key, 'r')
        reserved = {name = string.sub(packed, 17)}
        reserved.ends, reserved.tokens = unpack(RESERVED, packed)
    end
else
    for i = 2, #bursts do levels[i] = bursts[i] end
end

-- A clock that steps backwards is ignored until it has caught up: no second is refilled twice.
local now = max(time, clock - epoch)
if reserved and reserved.ends <= now then reserved = nil end

local entries = entry and {name, entry} or {} -- the hosts to look at, a name and a field each
