-- Leases whole tokens to one host, from every bandwidth or from none, within the host's fair share.
--
-- ARGV[2] host, ARGV[3] seq    (an ask that granted answers its repetition with the same tokens)
-- ARGV[4] age                  (us since the host's quota was set: of two that differ the younger one counts)
-- ARGV[5] epoch                (us: of the bucket that the host knows; 0: none)
-- ARGV[6] fill                 (share of the burst at which a lost bucket begins)
-- ARGV[7] need, ARGV[8] queued, ARGV[9] want  (tokens: the smallest useful grant, what callers wait for, the target)
-- ARGV[10] held, ARGV[11] back (tokens of earlier grants: still here, returned unspent; the rest is spent)
-- ARGV[12] max_wait, ARGV[13] round_trip  (us: how far in the future a grant may begin, how long answers take)
-- ARGV[14] weight              (a whole number: a host of weight 2 has twice the share of a host of weight 1)
-- returns {granted, kept, starts_in (us), lease (us), retry_after (us), level, active_hosts, epoch (us), version,
--          config ('' unless the bucket obeys a newer one than the host asked with)}

local config, name, seq, age, epoch, fill = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]),
                                            tonumber(ARGV[5]), tonumber(ARGV[6])
local ask = {need = tonumber(ARGV[7]), queued = tonumber(ARGV[8]), want = tonumber(ARGV[9]),
             held = tonumber(ARGV[10]), back = tonumber(ARGV[11]), max_wait = tonumber(ARGV[12]),
             round_trip = tonumber(ARGV[13]), weight = tonumber(ARGV[14])}
local ALPHA = 0.5 -- the share of a bucket that all hosts together may hold in reserve
local RICH = 1500000    -- the longest lease while the bucket is rich (us)
local WAITING = 250000  -- the longest lease of tokens for who waits: a busy machine has woken them by then (us)
local UNKNOWN = 100000  -- the shortest lease of a host that does not know yet how long an answer takes (us)
local SLOWEST = 2000000 -- the longest round trip that a lease makes up for (us)

local function reply(bucket, host, granted, kept, starts_in, retry_after)
    local told = bucket.config == config and '' or bucket.config
    return {granted, kept, starts_in, math.max(0, host.expires - bucket.now - starts_in), retry_after,
            lowest(bucket), bucket.active, bucket.epoch, bucket.version, told}
end

-- What was used stays used, as a share of the burst; so two quotas in turn mint nothing. A bandwidth that was not
-- there before begins as poor as the poorest. Tokens already leased count against the new burst at once.
local function reconfigure(bucket)
    local old, levels, poorest = bucket.bands, bucket.levels, 1
    for i, band in ipairs(old) do poorest = math.min(poorest, levels[i] / band.burst) end
    bucket.config, bucket.version = config, bucket.version + 1
    bucket.bands, bucket.levels = bandwidths(config), {}
    for i, band in ipairs(bucket.bands) do
        local share = old[i] and levels[i] / old[i].burst or poorest
        bucket.levels[i] = math.min(share * band.burst, math.max(0, band.burst - bucket.outstanding))
    end
end

-- What is in the bucket for this host: all, but for what is reserved for another.
local function level_for(bucket, host, i)
    local reserved = bucket.reserved
    return bucket.levels[i] - (reserved and reserved.name ~= host.name and reserved.tokens or 0)
end

-- A cost near the burst fits only while all others pause. So a host that accrued its need, and was refused all the
-- same, has it reserved: nobody draws on that until it is served, or has not come back when it could be; two paces
-- at the most if its caller does not wait.
local function reserve(bucket, host, wait)
    if not bucket.reserved or bucket.reserved.name == host.name then
        local patience = 2 * math.max(PACE, pace_of(bucket)) + (ask.max_wait > 0 and wait or 0)
        bucket.reserved = {name = host.name, tokens = ask.need, ends = bucket.now + patience}
    end
end

-- The younger quota wins, whoever asks first: an old process that meets a key anew does not bring its own back.
local function agree(bucket)
    local since = bucket.now - age
    if config ~= bucket.config and since >= bucket.since then reconfigure(bucket) end
    if config == bucket.config then bucket.since = math.max(bucket.since, since) end
end

local function report(bucket, host)
    local kept = math.min(ask.held, host.held)
    local back = math.min(ask.back, host.held - kept)
    bucket.outstanding = bucket.outstanding - (host.held - kept)
    host.held = kept
    credit(bucket, back)
end

-- One bandwidth's fair division between the active hosts. Each accrues its share of the rate, by its weight, from when
-- it was last served; a host may take what it accrued, or what is left when the others' accruals are set aside,
-- whichever is more. But half of what is there is for whoever asks: set aside in full for 20 hosts, a bucket of 10 was
-- full and yet refused every third caller at twice its rate (simulated).
local function division(bucket, host, i)
    local now, band, level = bucket.now, bucket.bands[i], level_for(bucket, host, i)
    local part = host.weight / bucket.weights
    local mine = math.min(band.rate * part * (now - host.last), math.max(band.burst * part, ask.need))
    local waited = (bucket.weights - host.weight) * now - (bucket.lasts - host.weight * host.last)
    local others = math.min(band.rate / bucket.weights * waited, ALPHA * level)
    return part, mine, math.max(mine, level - math.max(0, others))
end

-- How many tokens the host may have now, when `need` is expected to fit (us), and what it had accrued.
local function offer(bucket, host)
    local granted, wait, accrued = ask.want, 0, math.huge
    for i, band in ipairs(bucket.bands) do
        local level = level_for(bucket, host, i)
        local part, mine, fair = division(bucket, host, i)
        local soft = math.max(ALPHA * level * part, mine)
        local cap = math.min(ALPHA * band.burst * part - host.held, ALPHA * band.burst - bucket.outstanding)
        granted = math.min(granted, level, fair, math.max(ask.queued, math.min(cap, soft)))
        wait = math.max(wait, (ask.need - level) / band.rate, (ask.need - fair) / (band.rate * part))
        accrued = math.min(accrued, mine)
    end
    wait = math.ceil(math.min(wait, LONGEST * 1000)) + 1 -- + 1 us: never a rounding error too early
    return math.max(0, math.floor(granted)), wait, accrued
end

-- What will have flowed in `ahead` us from now. Together with all that is leased it must fit the burst: then nothing
-- stops the refill before the grant begins, and it begins when the level, now negative, is back at 0.
local function later(bucket, host, ahead)
    if bucket.reserved and bucket.reserved.name ~= host.name then return 0 end
    local granted = ask.queued
    for i, band in ipairs(bucket.bands) do
        local part, _, fair = division(bucket, host, i)
        local flow = band.rate * ahead
        granted = math.min(granted, bucket.levels[i] + flow, fair + flow * part, band.burst - bucket.outstanding)
    end
    return math.floor(granted)
end

local function is_rich(bucket)
    for i, band in ipairs(bucket.bands) do
        if bucket.levels[i] < ALPHA * band.burst then return false end
    end
    return true
end

-- Tokens for callers who wait already need no longer than to reach them, unless those sleep until a grant begins; of a
-- part of what they wait for some may be kept for who is next. A reserve lasts longer where tokens abound:
-- what would flow in meanwhile would be wasted anyway, and a third of the calls is saved at half the rate, an eighth at
-- nine tenths (simulated). The price: spent tokens count as leased until they are reported, so when demand leaps up,
-- up to 1 % less of the first ten seconds is used than with short leases. And no lease is shorter than answers take: a
-- host would find it over on arrival.
local function lease_for(bucket, granted, starts_in)
    local lease = lease_of(bucket.bands)
    if starts_in > 0 then
        lease = math.max(lease, UNKNOWN)
    elseif granted > 0 and granted == ask.queued then
        lease = math.min(lease, WAITING)
    elseif is_rich(bucket) then
        lease = math.max(lease, math.floor(least(bucket.bands, function(band)
            return math.min(RICH, 0.75 * band.burst / band.rate)
        end)))
    end
    local trip = math.min(ask.round_trip, SLOWEST)
    return math.max(lease, trip == 0 and UNKNOWN or math.max(2 * trip, math.min(4 * trip, UNKNOWN)))
end

local function lend(bucket, host, granted, starts_in)
    local lease = lease_for(bucket, granted, starts_in)
    for i in ipairs(bucket.levels) do bucket.levels[i] = bucket.levels[i] - granted end
    bucket.outstanding = bucket.outstanding + granted
    host.held, host.granted, host.starts = host.held + granted, granted, bucket.now + starts_in
    host.expires = math.max(host.expires, host.starts + lease)
end

local function serve(bucket, host, at)
    bucket.lasts, host.last = bucket.lasts + host.weight * (at - host.last), at
end

local bucket = read_bucket()
if not bucket then
    bucket = new_bucket(config, epoch > 0 and fill or 1)
    bucket.since = -age
end
local host, hosts = read_host(bucket, name), others_of(bucket, name)
hosts[#hosts + 1] = host
refill_to_now(bucket, hosts)
for _, each in ipairs(hosts) do keep(bucket, each) end
host = host and not host.struck and host or enter(bucket, name)
touch(bucket, host)
if seq < host.seq or (seq == host.seq and host.granted > 0) then
    write_bucket(bucket)
    if seq < host.seq then return reply(bucket, host, 0, 0, 0, 0) end -- a late duplicate: nobody waits for it
    return reply(bucket, host, host.granted, host.held - host.granted, math.max(0, host.starts - bucket.now), 0)
end

if host.weight ~= ask.weight then weigh(bucket, host, ask.weight) end
agree(bucket)
report(bucket, host)
local granted, wait, accrued = offer(bucket, host)
local starts_in, refused = 0, granted < ask.need
if refused then
    starts_in = math.max(wait, math.ceil(math.min(pace_of(bucket), ask.max_wait)))
    granted = wait <= ask.max_wait and later(bucket, host, starts_in) or 0
    refused = granted < ask.need
end
local kept = host.held
host.seq, host.seen, host.granted = seq, bucket.now, 0
if refused then
    granted, starts_in = 0, 0
    if accrued >= ask.need then reserve(bucket, host, wait) end
else
    if ask.need > 0 and bucket.reserved and bucket.reserved.name == name then bucket.reserved = nil end
    lend(bucket, host, granted, starts_in)
    if ask.need > 0 or (granted > 0 and granted >= accrued) then serve(bucket, host, bucket.now + starts_in) end
end
write_bucket(bucket)
return reply(bucket, host, granted, kept, starts_in, refused and wait or 0)
