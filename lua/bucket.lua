-- Theory of operation
--
-- Promise: a bucket of rate r and burst b admits at most b + r * t tokens in any time t. That holds for all limiter
-- instances together, although each of them spends leased tokens without asking.
--
-- Invariant: level + outstanding <= b, for every bandwidth. The level is the tokens in the bucket. Outstanding are
-- leased tokens that an instance may still spend: it has neither reported them as spent nor returned them, and its
-- lease is not over. Refill stops when the sum reaches b. So tokens that are spent in a time t come from two sources.
-- At most b were in the bucket or outstanding at its beginning, and at most r * t were refilled since. After a burst was
-- lowered more may be outstanding: then there is no refill.
--
-- State: a bucket is one hash. Its fields are text: a number, or several with a space between. Times are microseconds
-- (us) of the server's clock since the bucket's epoch, so that sums of them stay exact.
--   quota        amount/seconds:burst of each bandwidth; the bucket obeys it, even if a caller sends another one
--   epoch        when the bucket began (us since 1970)
--   version      how often the quota was set
--   format       of this hash, if it is not 1: see FORMAT
--   level        tokens in each bandwidth; below 0 while grants that begin later are unpaid
--   outstanding  tokens
--   used         tokens that were granted, less those that came back (a count since the bucket began)
--   refused      tokens that instances refused their callers (the same; written once there are some)
--   shadow       tokens that they admitted, and that a quota in shadow mode was to refuse (the same)
--   shares       active: how many instances have a share; the sum of their weights; lasts: the sum of weight * last
--   times        time: until then the bucket is refilled; swept: how long before that all instances were looked at;
--                kept: when the key expires (ms); since: when the quota was set. And while one of these is not 0:
--                known: how long after `time` a refund is remembered; 1 if tokens are reserved
--   reserved     tokens that only one instance may draw on; until when; the field of that instance
--   paused       until when the bucket is paused; why (text). It stays for SETTLES after that, or longer
--   rank, heard  rules and revision of the quota: it outranks all with less. And when an instance of this rank was last
--                heard that wants it. Written once instances disagree, or have a rank above 0
--   instance:ID  held (tokens); seen: when it asked last; how long after that its tokens expire; granted (tokens) by
--                the ask numbered seq (spent, if more than what is held); weight; how long before `seen` it was served
--                last (its share began anew). And while one of these is not 0: how long after `seen` that grant starts,
--                and a refund is known
--
-- A bucket is small while it is only spent of: that is what most are, and memory of the server is what they cost. spend
-- makes it small, and so a large one of which nobody leases any more and that remembers no refund; whoever else writes it
-- makes it large.
--   q            its quota, and '@' if it has a rank
--   s            epoch, time, since (s), kept (s), used, level. The level is whole, and `time` when it was just that
--   l            the level of each bandwidth at `time`, if there are several
--   h            '@', the rank, and when it was heard
--   format, refused, shadow  as above
-- A server keeps a hash in one block of memory while no field or value is longer than 64 bytes. Few of these are.
--
-- Scripts: each consists of the files named here, one after the other, which share their variables. A script is one
-- atomic step of the server.
--   take       start bucket sweep refill take write  leases tokens to one instance
--   spend      start spend                           spends tokens of many buckets of which nobody leases
--   give_back  start bucket refill give_back write   takes back what an instance did not spend, and refunds
--   peek       start bucket sweep refill peek        looks, and writes nothing
--   reset      start bucket sweep refill reset write fills the bucket, when an operator says so
--   pause      start bucket refill pause write       has nobody admitted until some time
-- A pause is a debt: the level of one bandwidth is lowered so far that it is 0 again when the pause ends. So nobody is
-- admitted until then, refusals say when it is over, and nothing looks for a pause at each call. Then tokens come at the
-- rate, and not all at once: upstreams that asked for the pause are not to meet a herd. It is the bandwidth that fills
-- fastest; the others keep what they have. Tokens that come back meanwhile do not end it earlier.
-- The overrides that operators set are another hash, which change.lua writes; take tells their revision.
-- start reads the clock. bucket reads the bucket and the caller's instance, or begins a full bucket. sweep reads the instances whose lease is
-- over. refill adds the tokens for the time that has passed, and ends those leases. write writes everything back, and
-- sets the key to expire when the bucket will be full, because a missing bucket is a full one.
--
-- They need only Lua 5.1 and commands of hashes. So they run on Redis 6.2 to 8, Valkey, fakeredis and a cluster, where
-- the key's whole name is one hash tag. batchlimit/bucket/bucket.py is the same arithmetic in Python; tests/lua
-- compares them.
--
-- KEYS[1] bucket    (the hash)
-- ARGV[1] quota     (the caller's, written as in the hash)
-- ARGV[2] instance  (the caller's ID; peek has none)

local key, quota, name = KEYS[1], ARGV[1], 'instance:' .. (ARGV[2] or '')

local ACTIVE = 1000000 -- an instance that asked within this time has a share (us)
local SETTLES = 4000000 -- for so long after a pause it is remembered (us)

-- Returns the bandwidths of a quota, and how long a lease of a poor bucket lasts (us). Of each bandwidth: the rate
-- (tokens/us), the burst and, as of a full bucket, the level (tokens).
--
-- A lease is a small part of the time in which the bucket refills: tokens of a lost instance come back soon, and spent
-- ones are not outstanding for long. If leases last as long as a refill, there is no refill. Simulated with leases of
-- 100 ms instead of 20: a bucket of 10 at 100/s admitted 68 % of nine tenths of its rate to 20 instances, not 94 %.
local function bandwidths(text)
    local bands, lease, at = {}, LEASE, 1
    repeat
        local amount, seconds, burst, after = match(text, '^(%d[%d.e+-]*)/(%d+):(%d+) ?()', at)
        local band = {rate = amount / seconds / 1000000, burst = burst + 0, level = burst + 0}
        bands[#bands + 1], at = band, after
        lease = min(lease, 0.4 * band.burst / band.rate)
    until at > #text
    return bands, max(SHORTEST, floor(lease))
end

-- Returns when the key is to expire (ms since the epoch), and whether the server has to be told.
--
-- The expiry is set again only if it would be too early, or far too late: once in SLACK, which saves a tenth of the
-- time. It follows the server's clock and not `now`, which stands still after the clock stepped back: the key would
-- expire early.
local function expiry(kept, passed, ttl)
    local enough = passed + min(ttl, LONGEST)
    if kept < enough or kept > enough + 2 * SLACK then return enough + SLACK, true end
    return kept, false
end

local found, epoch, version, level, outstanding, shares, times, rank, used, written, was_paused, entry = unpack(call(
    'HMGET', key, 'quota', 'epoch', 'version', 'level', 'outstanding', 'shares', 'times', 'rank', 'used', 'format',
    'paused', name))
local is_small, heard = false, nil
if not found then
    local said, state, levels, seen = unpack(call('HMGET', key, 'q', 's', 'l', 'h'))
    if said and state then -- a small bucket is read as a large one that nobody has leased of
        local time, since, ends, tokens
        found = match(said, '^[^@]+')
        epoch, time, since, ends, used, tokens = match(state, '^(%d+) (%d+) (-?%d+) (-?%d+) (-?%d+) (%d+)$')
        is_small, version, outstanding, shares, level = true, 1, 0, '0 0 0', levels or tokens
        times = format('%d 0 %d %d', time, ends * 1000, since * 1000000)
        if found ~= said then rank, heard = match(seen, '^@(%d+ %d+) (%d+)$') end
    end
end
local there = found or #call('HGETALL', key) > 0
written = written or (there and '1' or FORMAT)
if written ~= FORMAT then
    return redis.error_reply('FORMAT this bucket is of format ' .. written .. ', and this release reads ' .. FORMAT)
end
local obeyed, heard_at = found or quota, nil
used = tonumber(used or 0) or 0 -- for people: where it is missing or damaged it counts from now on
if there and not found then error('this hash is no bucket') end

-- Below, text + 0 is its number. A missing or damaged field fails the script: BucketUnavailable.

local bands, lease = bandwidths(obeyed)
local reserved, was_reserved = nil, false
local time, swept, kept, since, known, active, weights, lasts = 0, 0, 0, 0, 0, 0, 0, 0
if found then
    local at, more = 1, nil
    for i = 1, #bands do
        local tokens, after = match(level, '^(-?%d[%d.e+-]*) ?()', at)
        bands[i].level, at = tokens + 0, after
    end
    active, weights, lasts = match(shares, '^(%d+) (%d+) (-?%d+)$')
    time, swept, kept, since, more = match(times, '^(%d+) (%d+) (-?%d+) (-?%d+)(.*)$')
    epoch, version, outstanding, active, weights = epoch + 0, version + 0, outstanding + 0, active + 0, weights + 0
    lasts, time, kept, since = lasts + 0, time + 0, kept + 0, since + 0
    swept = time - swept
    if not (epoch + version + outstanding < 2 ^ 53) then error('a field of this bucket is no number') end -- nan
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
end

-- A clock that steps backwards is ignored until it has caught up: no second is refilled twice.
local now = max(time, clock - epoch)
if reserved and reserved.ends <= now then reserved = nil end
local paused = was_paused and match(was_paused, '^%d+') + 0 or nil
if paused and paused + SETTLES <= now then paused = nil end

-- Returns the bandwidth that a pause lowers: the one that fills fastest.
local function quickest(bands)
    local found = bands[1]
    for i = 2, #bands do if bands[i].burst / bands[i].rate < found.burst / found.rate then found = bands[i] end end
    return found
end
local gate = paused and paused > now and quickest(bands) or nil

local entries = entry and {name, entry} or {} -- the instances to look at, a name and a field each
