-- What every script of a bucket begins with: one bucket's state, read, refilled, and written back.
--
-- KEYS[1] bucket  (a hash; its whole name is one hash tag, so a bucket never spans slots)
-- ARGV[1] config  (the caller's quota: "rate:burst" a bandwidth, in tokens/s and tokens, joined by spaces)
--
-- The promise rests on one invariant: level + outstanding <= burst, for every bandwidth, at all times but while more
-- is leased than a burst that was just lowered.
-- Outstanding counts every leased token that is not reported spent, given back or expired; refill stops there.
-- Times are microseconds of the server since the bucket's epoch (its birth), so that sums of them stay exact.
-- batchlimit/core/bucket.py is the same arithmetic, line for line; tests hold the two against each other.

local key = KEYS[1]
local LEASE = 1000000  -- the longest lease while the bucket is poor (us)
local SHORTEST = 20000 -- the shortest: an answer that takes longer than its lease brings nothing (us)
local ACTIVE = 1000000 -- a host that asked within this time has a share (us)
local PACE = 50000     -- the shortest spacing of one host's asks at a dry bucket, if that is no more than a fifth of
                       -- what it fills in (us)
local LONG_PACE = 200000 -- and the longest: where many hosts share it, or little flows in (us)
local SWEEP = 500      -- the spacing of two looks at all hosts, for each of them (us)
local BATCH = 25       -- how many tokens a host accrues between two asks at a dry bucket, if that is not too long
local MARGIN = 5000    -- how much longer than needed an untouched bucket is kept: longer than any lease (ms)
local LONGEST = 315360000000 -- ten years (ms): what is longer might overflow a clock or an integer

-- Doubles keep 17 digits; tostring would keep 14 and lose microseconds.
local function exact(numbers)
    local words = {}
    for i, number in ipairs(numbers) do words[i] = string.format('%.17g', number) end
    return table.concat(words, ' ')
end

local function numbers(text)
    local list = {}
    for word in string.gmatch(text, '%S+') do list[#list + 1] = tonumber(word) end
    return list
end

local function bandwidths(config)
    local bands = {}
    for rate, burst in string.gmatch(config, '(%S+):(%S+)') do
        bands[#bands + 1] = {rate = tonumber(rate) / 1000000, burst = tonumber(burst)}
    end
    return bands
end

local function least(bands, figure)
    local smallest = math.huge
    for _, band in ipairs(bands) do smallest = math.min(smallest, figure(band)) end
    return smallest
end

-- A lease is a small part of what the bucket refills in: tokens that a host lost come back soon, and spent ones are
-- not outstanding for long. Where leases last as long as the refill, refill stands still: with 100 ms instead of 20, a
-- bucket of 10 at 100/s admitted 68 % of nine tenths of its rate to 20 hosts, instead of 94 % (simulated).
local function lease_of(bands)
    local lease = least(bands, function(band) return math.min(LEASE, 0.4 * band.burst / band.rate) end)
    return math.max(SHORTEST, math.floor(lease))
end

-- The more hosts, the rarer each of them asks: 200 hosts at 50 ms cost 19 % of all decisions at twice the rate, at
-- 200 ms 4.9 %, and were served no less evenly (simulated; 10,000/s).
local function pace_of(bucket)
    return least(bucket.bands, function(band)
        local batch = BATCH * bucket.active / band.rate
        return math.min(math.max(PACE, batch), LONG_PACE, 0.2 * band.burst / band.rate)
    end)
end

local function server_time()
    local time = redis.call('TIME')
    return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function new_bucket(config, fill)
    local bucket = {config = config, version = 1, since = 0, epoch = server_time(), now = 0, time = 0, outstanding = 0,
                    active = 0, weights = 0, lasts = 0, swept = 0, known = 0, bands = bandwidths(config), levels = {}, changed = {}, gone = {}}
    for i, band in ipairs(bucket.bands) do bucket.levels[i] = math.floor(band.burst * fill) end
    return bucket
end

-- Lets flow in what may until an instant. A time longer than it takes to fill is as good as that time, and cannot
-- overflow.
local function refill(bucket, instant)
    local elapsed = instant - bucket.time
    bucket.time = instant
    for i, band in ipairs(bucket.bands) do
        local room = band.burst - bucket.outstanding - bucket.levels[i]
        if elapsed * band.rate >= room then
            bucket.levels[i] = bucket.levels[i] + math.max(0, room)
        else
            bucket.levels[i] = bucket.levels[i] + elapsed * band.rate
        end
    end
end

-- A clock that steps backwards is ignored until it has caught up: no second is refilled twice.
local function read_bucket()
    local field = redis.call('HMGET', key, 'config', 'version', 'epoch', 'time', 'levels', 'outstanding', 'active',
                             'weights', 'lasts', 'swept', 'reserved', 'since', 'known')
    if not field[1] then return nil end
    local bucket = {config = field[1], version = tonumber(field[2]), since = tonumber(field[12]), epoch = tonumber(field[3]),
                    levels = numbers(field[5]), outstanding = tonumber(field[6]), active = tonumber(field[7]),
                    weights = tonumber(field[8]), lasts = tonumber(field[9]), swept = tonumber(field[10]), known = tonumber(field[13]),
                    bands = bandwidths(field[1]), changed = {}, gone = {}}
    bucket.time = tonumber(field[4])
    bucket.now = math.max(bucket.time, server_time() - bucket.epoch)
    local name, tokens, ends = string.match(field[11], '^(%S+) (%S+) (%S+)$')
    if name and tonumber(ends) > bucket.now then
        bucket.reserved = {name = name, tokens = tonumber(tokens), ends = tonumber(ends)}
    end
    return bucket
end

local function unpack_host(name, text)
    local n = numbers(text)
    return {name = name, seq = n[1], held = n[2], expires = n[3], last = n[4], seen = n[5], granted = n[6],
            starts = n[7], weight = n[8], known = n[9]}
end

local function pack_host(host)
    return exact({host.seq, host.held, host.expires, host.last, host.seen, host.granted, host.starts,
                  host.weight, host.known})
end

-- The host's entry, or nil; not yet to be written back.
local function read_host(bucket, name)
    local text = redis.call('HGET', key, 'h:' .. name)
    return text and unpack_host(name, text) or nil
end

-- The entries of all others: once per lease time at most, and the rarer the more they are, so that a call costs O(1) on
-- average.
local function others_of(bucket, own_name)
    local others = {}
    if bucket.now - bucket.swept < math.max(lease_of(bucket.bands), SWEEP * bucket.active) then return others end
    bucket.swept = bucket.now
    local fields = redis.call('HGETALL', key)
    for i = 1, #fields, 2 do
        local name = string.match(fields[i], '^h:(.*)$')
        if name and name ~= own_name then others[#others + 1] = unpack_host(name, fields[i + 1]) end
    end
    return others
end

-- Refills to now. Tokens whose lease is over leave room from its end on, no sooner: they may have been spent till then.
-- And no later: hosts that ask rarely would keep a small bucket from filling (8 hosts, a bucket of 4, half its rate:
-- every fifth call was refused, simulated).
local function refill_to_now(bucket, hosts)
    local over = {}
    for _, host in ipairs(hosts) do
        if host.expires <= bucket.now then over[#over + 1] = host end
    end
    table.sort(over, function(one, other) return one.expires < other.expires end)
    for _, host in ipairs(over) do
        refill(bucket, math.max(bucket.time, host.expires))
        bucket.outstanding = bucket.outstanding - host.held
        host.released = host.held > 0
        host.held, host.granted = 0, 0
    end
    refill(bucket, bucket.now)
end

-- Puts tokens back as far as there is room (none where a burst was just lowered); returns how many whole ones.
local function credit(bucket, tokens)
    local credited = tokens
    for i, band in ipairs(bucket.bands) do
        local room = math.max(0, band.burst - bucket.outstanding - bucket.levels[i])
        credited = math.min(credited, math.floor(room))
        bucket.levels[i] = bucket.levels[i] + math.min(tokens, room)
    end
    return credited
end

local function is_idle(bucket, host)
    return host.expires <= bucket.now and host.seen + ACTIVE <= bucket.now
end

-- An entry without weight has no share, and is no active host; it only remembers. With weight its share begins anew.
local function weigh(bucket, host, weight)
    bucket.weights, bucket.lasts = bucket.weights - host.weight, bucket.lasts - host.weight * host.last
    if host.weight == 0 then bucket.active, host.last = bucket.active + 1, bucket.now end
    if weight == 0 then bucket.active = bucket.active - 1 end
    host.weight = weight
    bucket.weights, bucket.lasts = bucket.weights + weight, bucket.lasts + weight * host.last
end

-- Has the entry written back.
local function touch(bucket, host)
    if not host.touched then bucket.changed[#bucket.changed + 1] = host end
    host.touched = true
end

-- Takes the host's share away; strikes the entry, unless it remembers a refund.
local function forget(bucket, host)
    if host.weight > 0 then weigh(bucket, host, 0) end
    if host.known > bucket.now then return touch(bucket, host) end
    host.struck = true
    bucket.gone[#bucket.gone + 1] = host.name
end

-- Forgets the host if it asked long ago; returns its entry if there is one still.
local function keep(bucket, host)
    if is_idle(bucket, host) and (host.weight > 0 or host.known <= bucket.now) then forget(bucket, host) end
    if host.released then touch(bucket, host) end
    return not host.struck and host or nil
end

local function enter(bucket, name)
    return {name = name, seq = -1, held = 0, expires = 0, last = bucket.now, seen = bucket.now, granted = 0,
            starts = 0, weight = 0, known = 0}
end

local function write_bucket(bucket)
    local reserved = bucket.reserved
    local fields = {'config', bucket.config, 'version', exact({bucket.version}), 'since', exact({bucket.since}),
                    'epoch', exact({bucket.epoch}), 'known', exact({bucket.known}), 'time', exact({bucket.time}), 'levels', exact(bucket.levels),
                    'outstanding', exact({bucket.outstanding}), 'active', exact({bucket.active}),
                    'weights', exact({bucket.weights}), 'lasts', exact({bucket.lasts}), 'swept', exact({bucket.swept}),
                    'reserved', reserved and reserved.name .. ' ' .. exact({reserved.tokens, reserved.ends}) or ''}
    redis.call('HSET', key, unpack(fields))
    for _, name in ipairs(bucket.gone) do redis.call('HDEL', key, 'h:' .. name) end
    for _, host in ipairs(bucket.changed) do
        if not host.struck then redis.call('HSET', key, 'h:' .. host.name, pack_host(host)) end
    end
    local to_full = 0
    for i, band in ipairs(bucket.bands) do
        to_full = math.max(to_full, (band.burst - bucket.levels[i]) / band.rate)
    end
    local ttl = math.ceil((to_full + lease_of(bucket.bands)) / 1000) + MARGIN
    ttl = math.max(ttl, math.ceil((bucket.known - bucket.now) / 1000))
    redis.call('PEXPIRE', key, string.format('%.0f', math.min(ttl, LONGEST)))
end

local function lowest(bucket)
    local level = math.huge
    for _, each in ipairs(bucket.levels) do level = math.min(level, each) end
    return math.floor(level)
end
