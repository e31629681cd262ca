-- The beginning of the scripts of buckets: the server's time, and what a quota says.

local call, match, format = redis.call, string.match, string.format
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max

-- What the fields mean. A script refuses a bucket of another format and leaves it as it is. A change of what a field
-- means raises this number, and the one in batchlimit/bucket/state.py. It also gives `quota` another name: releases from
-- before there were formats look for that field, and refuse a hash that lacks it.
local FORMAT = '1'

local LEASE = 1000000  -- the longest lease while the bucket is poor (us)
local SHORTEST = 20000 -- the shortest: a lease that ends before the answer arrives is useless (us)
local LONGEST = 315360000000 -- ten years (ms): longer times might overflow a clock or an integer

local SILENT = 60000000 -- a rank counts for so long after an instance that has it was heard (us)
local HEARD = SILENT / 8 -- the first ask of an instance in each such time tells that its rank is heard still (us)
local FAR = 2 ^ 49      -- a quota by rules of the store is so much younger than any other: scripts without ranks obey it

local clock = call('TIME')
clock = clock[1] * 1000000 + clock[2]

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
local MARGIN = 5000 -- how much longer than needed an untouched bucket is kept: longer than any lease (ms)
local SLACK = 1000  -- and how much longer than that at the most, so that few calls have to say it anew (ms)
local function expiry(kept, passed, ttl)
    local enough = passed + min(ttl, LONGEST)
    if kept < enough or kept > enough + 2 * SLACK then return enough + SLACK, true end
    return kept, false
end
