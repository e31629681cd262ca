-- Theory of operation
--
-- Promise: a bucket of rate r and burst b admits at most b + r * t tokens in any time t, by all limiter instances
-- together, although an instance spends leased tokens without asking.
--
-- Invariant: level + outstanding <= b, for every bandwidth. The level is what is in the bucket. Outstanding is what
-- instances were lent and have not reported as spent, have not given back, and may still spend. Refill stops where the
-- sum reaches b. So whatever is spent in a time t was in the bucket or outstanding when that began, together at most b,
-- or flowed in since, at most r * t. Where a burst was lowered more may be outstanding: then nothing flows in.
--
-- State: a bucket is one hash. Its fields are text: a number, or several with a space between. Times are microseconds
-- (us) of the server's clock since the bucket's epoch, so that sums of them stay exact.
--   quota        amount/seconds:burst of each bandwidth; the bucket obeys it, whatever quota a caller brings
--   epoch        the bucket's birth (us since 1970)
--   version      how often the quota was set
--   level        tokens in each bandwidth; below 0 while grants that begin later are unpaid
--   outstanding  tokens
--   shares       active: how many instances have a share; the sum of their weights; lasts: the sum of weight * last
--   times        time: until then the bucket is refilled; swept: how long before that all instances were looked at;
--                kept: when the key expires (ms); since: when the quota was set. And while one of these is not 0:
--                known: how long after `time` a refund is remembered; 1 if tokens are reserved
--   reserved     tokens that only one instance may draw on; until when; the field of that instance
--   instance:ID  held (tokens); seen: when it asked last; how long after that its tokens expire; granted (tokens) by
--                the ask numbered seq; weight; how long before `seen` it was served last (its share began anew). And
--                while one of these is not 0: how long after `seen` that grant starts, and a refund is known
-- A server keeps a hash in one block of memory while no field or value is longer than 64 bytes. These mostly are not.
--
-- Scripts: each consists of the files named here, one after the other, which share their variables. A script is one
-- atomic step of the server.
--   take       bucket sweep refill take write  leases tokens to one instance
--   give_back  bucket refill give_back write   takes back what an instance did not spend, and refunds
--   peek       bucket refill peek              looks, and writes nothing
-- bucket reads the bucket and the caller's instance, or begins a full bucket. sweep reads the instances whose lease is
-- over. refill lets flow in what the time brought, and ends those leases. write writes all of it back, and says when
-- the key expires: when the bucket will be full, for a missing bucket is full too.
--
-- They need no more than Lua 5.1 and commands of hashes: they run on Redis 6.2 to 8, Valkey, a cluster (the key's whole
-- name is one hash tag) and fakeredis. batchlimit/bucket/bucket.py is the same arithmetic in Python; tests/lua holds the
-- two against each other.
--
-- KEYS[1] bucket    (the hash)
-- ARGV[1] quota     (the caller's, written as in the hash)
-- ARGV[2] instance  (the caller's ID; peek has none)

local key, quota, name = KEYS[1], ARGV[1], 'instance:' .. (ARGV[2] or '')
local call, match, format = redis.call, string.match, string.format
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max

local LEASE = 1000000  -- the longest lease while the bucket is poor (us)
local SHORTEST = 20000 -- the shortest: an answer that takes longer than its lease brings nothing (us)
local ACTIVE = 1000000 -- an instance that asked within this time has a share (us)
local LONGEST = 315360000000 -- ten years (ms): what is longer might overflow a clock or an integer

local clock = call('TIME')
clock = clock[1] * 1000000 + clock[2]
local found, epoch, version, level, outstanding, shares, times, entry = unpack(
    call('HMGET', key, 'quota', 'epoch', 'version', 'level', 'outstanding', 'shares', 'times', name))
local obeyed = found or quota
if not found and #call('HGETALL', key) > 0 then error('this hash is no bucket') end

-- Below, text + 0 is its number. Where a field is missing or damaged that fails the script: BucketUnavailable.

-- Returns the rates (tokens/us) and bursts (tokens) of a quota, and how long a lease of a poor bucket lasts (us).
--
-- A lease is a small part of what the bucket refills in: tokens that an instance lost come back soon, and spent ones
-- are not outstanding for long. Where leases last as long as the refill, refill stands still: with 100 ms instead of
-- 20, a bucket of 10 at 100/s admitted 68 % of nine tenths of its rate to 20 instances, instead of 94 % (simulated).
local function bandwidths(text)
    local rates, bursts, lease, at = {}, {}, LEASE, 1
    repeat
        local amount, seconds, burst, after = match(text, '^(%d[%d.e+-]*)/(%d+):(%d+) ?()', at)
        local rate = amount / seconds / 1000000
        rates[#rates + 1], bursts[#bursts + 1], at = rate, burst + 0, after
        lease = min(lease, 0.4 * burst / rate)
    until at > #text
    return rates, bursts, max(SHORTEST, floor(lease))
end

local rates, bursts, lease = bandwidths(obeyed)
local levels, reserved, was_reserved = {}, nil, false
local time, swept, kept, since, known, active, weights, lasts = 0, 0, 0, 0, 0, 0, 0, 0
if found then
    local at, more = 1, nil
    for i = 1, #rates do
        local tokens, after = match(level, '^(-?%d[%d.e+-]*) ?()', at)
        levels[i], at = tokens + 0, after
    end
    active, weights, lasts = match(shares, '^(%d+) (%d+) (-?%d+)$')
    time, swept, kept, since, more = match(times, '^(%d+) (%d+) (-?%d+) (-?%d+)(.*)$')
    epoch, version, outstanding, active, weights = epoch + 0, version + 0, outstanding + 0, active + 0, weights + 0
    lasts, time, kept, since = lasts + 0, time + 0, kept + 0, since + 0
    swept = time - swept
    if not (epoch + version + outstanding < 2 ^ 53) then error('a field of this bucket is no number') end -- but nan
    if more ~= '' then
        known, was_reserved = match(more, '^ (%d+) ([01])$')
        known, was_reserved = time + known, was_reserved == '1'
    end
    if was_reserved then
        local tokens, ends, whose = match(call('HGET', key, 'reserved'), '^(%d+) (%S+) (.*)$')
        reserved = {tokens = tokens + 0, ends = ends + 0, name = whose}
    end
else
    epoch, version, outstanding = clock, 1, 0
    for i = 1, #bursts do levels[i] = bursts[i] end
end

-- A clock that steps backwards is ignored until it has caught up: no second is refilled twice.
local now = max(time, clock - epoch)
if reserved and reserved.ends <= now then reserved = nil end

local entries = entry and {name, entry} or {} -- the instances to look at, a name and a field each
