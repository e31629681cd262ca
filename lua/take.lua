-- Leases whole tokens to one host, from every bandwidth or from none, within the host's fair share.
--
-- ARGV[2] host, ARGV[3] seq    (an ask that granted answers its repetition with the same tokens)
-- ARGV[4] age                  (us since the host's quota was set: of two that differ the younger one counts)
-- ARGV[5] epoch                (us: of the bucket that the host knows; 0: none)
-- ARGV[6] fill                 (share of the burst at which a lost bucket begins)
-- ARGV[7] need, ARGV[8] queued, ARGV[9] want  (tokens: the smallest useful grant, what callers wait for, the target)
-- ARGV[10] held, ARGV[11] back (tokens of earlier grants: still here, returned unspent; the rest is spent)
-- ARGV[12] max_wait, ARGV[13] round_trip  (us: how far in the future a grant may begin, how long answers take)
-- returns {granted, kept, starts_in (us), lease (us), retry_after (us), level, active_hosts, epoch (us), version,
--          config ('' unless the bucket obeys a newer one than the host asked with)}

local config, name, seq, age, epoch, fill = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]),
                                            tonumber(ARGV[5]), tonumber(ARGV[6])
local ask = {need = tonumber(ARGV[7]), queued = tonumber(ARGV[8]), want = tonumber(ARGV[9]),
             held = tonumber(ARGV[10]), back = tonumber(ARGV[11]), max_wait = tonumber(ARGV[12]),
             round_trip = tonumber(ARGV[13])}
local ALPHA = 0.5 -- the share of a bucket that all hosts together may hold in reserve
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
        local patience = 2 * PACE + (ask.max_wait > 0 and wait or 0)
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
    for i, band in ipairs(bucket.bands) do
        local room = math.max(0, band.burst - bucket.outstanding - bucket.levels[i]) -- less, if the burst was lowered
        bucket.levels[i] = bucket.levels[i] + math.min(back, room)
    end
end

-- One bandwidth's fair division between the n active hosts. Each accrues rate/n from when it was last served; a host
-- may take what it accrued, or what is left when the others' accruals are set aside, whichever is more.
local function division(bucket, host, i)
    local n, now, band, level = bucket.active, bucket.now, bucket.bands[i], level_for(bucket, host, i)
    local share = band.rate / n
    local mine = math.min(share * (now - host.last), math.max(band.burst / n, ask.need))
    local others = math.min(share * ((n - 1) * now - (bucket.lasts - host.last)), band.burst * (n - 1) / n)
    return share, mine, math.max(mine, level - math.max(0, others))
end

-- How many tokens the host may have now, when `need` is expected to fit (us), and what it had accrued.
local function offer(bucket, host)
    local granted, wait, accrued = ask.want, 0, math.huge
    for i, band in ipairs(bucket.bands) do
        local level = level_for(bucket, host, i)
        local share, mine, fair = division(bucket, host, i)
        local soft = math.max(ALPHA * level / bucket.active, mine)
        local cap = math.max(ask.queued, ALPHA * band.burst / bucket.active - host.held)
        granted = math.min(granted, level, fair, cap, math.max(ask.queued, soft))
        wait = math.max(wait, (ask.need - level) / band.rate, (ask.need - fair) / share)
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
        local share, _, fair = division(bucket, host, i)
        granted = math.min(granted, bucket.levels[i] + band.rate * ahead, fair + share * ahead,
                           band.burst - bucket.outstanding)
    end
    return math.floor(granted)
end

local function lend(bucket, host, granted, starts_in)
    for i in ipairs(bucket.levels) do bucket.levels[i] = bucket.levels[i] - granted end
    bucket.outstanding = bucket.outstanding + granted
    host.held, host.granted, host.starts = host.held + granted, granted, bucket.now + starts_in
    local lease = math.max(lease_of(bucket.bands), 2 * math.min(ask.round_trip, SLOWEST))
    host.expires = math.max(host.expires, host.starts + lease)
end

local function serve(bucket, host, at)
    bucket.lasts, host.last = bucket.lasts - host.last + at, at
end

local bucket = read_bucket()
if not bucket then
    bucket = new_bucket(config, epoch > 0 and fill or 1)
    bucket.since = -age
end
local host = read_host(bucket, name)
sweep(bucket, name)
host = host or enter(bucket, name)
if seq < host.seq or (seq == host.seq and host.granted > 0) then
    write_bucket(bucket)
    if seq < host.seq then return reply(bucket, host, 0, 0, 0, 0) end -- a late duplicate: nobody waits for it
    return reply(bucket, host, host.granted, host.held - host.granted, math.max(0, host.starts - bucket.now), 0)
end

agree(bucket)
report(bucket, host)
local granted, wait, accrued = offer(bucket, host)
local starts_in, refused = 0, granted < ask.need
if refused then
    starts_in = math.max(wait, math.ceil(math.min(pace_of(bucket.bands), ask.max_wait)))
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
