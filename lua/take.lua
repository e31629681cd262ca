-- Leases whole tokens to one instance, from every bandwidth or from none, within the instance's fair share.
--
-- ARGV[3] numbers on one line:
--   seq                   (a repeated number gets the same grant again)
--   age                   (us since the instance's quota was set: of two of one rank the younger one counts)
--   epoch_seen            (us: of the bucket that the instance knows; 0: none)
--   fill                  (share of the burst at which a lost bucket begins)
--   need, queued, want    (tokens: the smallest useful grant, those that callers wait for, the target)
--   held, back            (tokens of earlier grants: still here, returned unspent; the rest is spent)
--   round_trip            (us: how long answers take)
-- and, unless these are 0, 1, '0 0', 0 and 0:
--   max_wait              (us: how far in the future a grant may begin)
--   weight                (a whole number: an instance of weight 2 has twice the share of one of weight 1)
--   claim                 (the rank of the instance's quota: which overrides it knows, and the revision of its code)
--   refused               (tokens that the instance refused its callers since it last said so)
--   shadow                (tokens that it admitted, and that a quota in shadow mode was to refuse; the same)
-- ARGV[4] rules (name of the hash of overrides; '' or missing in a cluster, where it is at another node. Not one of KEYS:
--         the server would demand the right to write it)
-- returns {granted, kept, starts_in (us), lease (us), retry_after (us), active_instances, epoch (us), version,
--          quota ('' unless the bucket obeys another one than the caller's), revision of the overrides (-1: not seen),
--          level of each bandwidth (thousandths of a token)...}
--          (no table within it: a server takes 0.5 us more for each)

local seq, age, epoch_seen, fill, need, queued, want, held, back, round_trip, rest =
    match(ARGV[3], '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)(.*)$')
seq, age, epoch_seen, fill, need = seq + 0, age + 0, epoch_seen + 0, fill + 0, need + 0
queued, want, held, back, round_trip = queued + 0, want + 0, held + 0, back + 0, round_trip + 0
local max_wait, weight, claim, refused, shadow = 0, 1, '0 0', 0, 0
if rest ~= '' then
    max_wait, weight, claim, refused, shadow = match(rest, '^ (%S+) (%S+) (%S+ %S+) (%S+) (%S+)$')
    max_wait, weight, refused, shadow = max_wait + 0, weight + 0, refused + 0, shadow + 0
end

local ALPHA = 0.5       -- the share of a bucket that all instances together may hold in reserve
local LEASABLE = 3      -- an instance that may hold fewer tokens than these in reserve spends instead of leasing
local RICH = 1500000    -- the longest lease while the bucket is rich (us)
local WAITING = 250000  -- the longest lease of tokens for waiting callers: a busy machine wakes them by then (us)
local UNKNOWN = 100000  -- the shortest lease of an instance that does not yet know how long answers take (us)
local CRUMB = 0.01      -- a spend counts until this part of a token is refilled, if that is later (tokens)
local LATE = 2000000    -- but no longer than this (us)
local SLOWEST = 2000000 -- the longest round trip by which a lease is lengthened (us)
local PACE = 50000      -- the shortest spacing of one instance's asks at an empty bucket, if that is at most a fifth
                        -- of the time in which it fills (us)
local LONG_PACE = 200000 -- the longest: with many instances, or a low rate (us)
local LAST = 600000      -- an instance that is alone takes all that is left, if that is refilled within this time (us)
local SOONEST = 20000   -- the pace just after a pause, if that is shorter (us)
local LATER = 0.05      -- and by how much of the time since then it becomes longer
local BATCH = 25        -- how many tokens an instance accrues between two asks at an empty bucket, within those

local set = now - age
if claim ~= '0 0' and string.sub(claim, 1, 2) ~= '0 ' then set = set + FAR end
if not found then
    since = set
    if claim ~= '0 0' then rank, heard_at = claim, now end
    for i = 1, #bands do bands[i].level = floor(bands[i].burst * (epoch_seen > 0 and fill or 1)) end
end
instance = instance or {name = name, seq = -1, held = 0, expires = 0, last = now, seen = now, granted = 0, starts = 0,
                        weight = 0, known = 0}

local granted, still, starts_in, retry_after = 0, 0, 0, 0
local repeated = seq == instance.seq and instance.granted > 0 and now < instance.expires
if repeated then
    granted, still = instance.granted, max(0, instance.held - instance.granted)
    starts_in = max(0, instance.starts - now)
elseif seq >= instance.seq then -- an older number is a late duplicate: no caller waits for it
    if refused > 0 then
        call('HSET', key, 'refused', (tonumber(call('HGET', key, 'refused') or 0) or 0) + refused)
    end
    if shadow > 0 then
        call('HSET', key, 'shadow', (tonumber(call('HGET', key, 'shadow') or 0) or 0) + shadow)
    end

    -- An instance whose weight changes keeps the time that it has accrued for; a new one begins now.
    if instance.weight ~= weight then
        weights, lasts = weights - instance.weight, lasts - instance.weight * instance.last
        if instance.weight == 0 then active, instance.last = active + 1, now end
        instance.weight = weight
        weights, lasts = weights + weight, lasts + weight * instance.last
    end

    -- The quota of the highest rank wins, and of one rank the younger, whichever instance asks first. So an old process
    -- that starts or uses a key again does not restore its own. Once no instance wants the winner any more, as after a
    -- rollback, the next that asks for another gets it.
    local is_level = claim == (rank or '0 0')
    local is_heard = not rank or (instance.seq >= 0 and floor(instance.seen / HEARD) == floor(now / HEARD))
    if quota == obeyed and is_level and is_heard then
        since = max(since, set)
    else
        local rules, revision = match(claim, '^(%d+) (%d+)$')
        local of_rules, of_code = match(rank or '0 0', '^(%d+) (%d+)$')
        local heard = rank and not heard_at and (heard or call('HGET', key, 'heard')) + 0 or now
        rules, revision, of_rules, of_code = rules + 0, revision + 0, of_rules + 0, of_code + 0
        local is_above = rules > of_rules or (rules == of_rules and revision > of_code)
        local is_first = is_above or (is_level and set >= since) or now - heard >= SILENT
        local is_changed = quota ~= obeyed and is_first
        if is_changed then
            -- Used tokens stay used, as a share of the burst, so that two quotas in turn create no tokens. A new bandwidth
            -- begins with the least share of the others. Tokens that are leased count against the new burst at once.
            if gate then gate.level = gate.level + (paused - now) * gate.rate end
            local before, poorest = bands, 1
            for i = 1, #before do poorest = min(poorest, before[i].level / before[i].burst) end
            obeyed, version = quota, version + 1
            bands, lease = bandwidths(quota)
            for i = 1, #bands do
                local band, old = bands[i], before[i]
                band.level = min((old and old.level / old.burst or poorest) * band.burst,
                                 max(0, band.burst - outstanding))
            end
            gate = gate and quickest(bands)
            if gate then gate.level = min(0, gate.level) + (now - paused) * gate.rate end
        end
        if quota == obeyed and (is_first or is_level) then
            local is_new = is_changed or not (rank and is_level)
            since = is_level and not is_changed and max(since, set) or set
            if rank or claim ~= '0 0' then rank = claim end
            if rank and (is_new or now - heard >= HEARD) then heard_at = now end
        end
        if not rank and quota ~= obeyed then rank, heard_at = '0 0', now end
    end

    -- The instance's report: spent tokens are gone, unspent ones go back as far as there is room.
    still = min(held, instance.held)
    local unspent = back > 0 and min(back, returnable(still)) or 0
    used = used - unspent
    outstanding = outstanding - (instance.held - still)
    if unspent > 0 then
        for i = 1, #bands do
            local band = bands[i]
            band.level = band.level + min(unspent, room(band))
        end
    end

    -- How many tokens the instance may have now, when `need` is expected to fit (us), and how much it has accrued.
    --
    -- Each active instance accrues its share of the rate, by its weight, since it was last served. It may take what it
    -- accrued (mine), or what is left after the others' accruals are set aside, whichever is more. But only half of the
    -- level can be set aside. Simulated with all of it, 20 instances and twice the rate, a bucket of 10 was full and
    -- yet refused every third caller. And only whole tokens: half a token set aside is of use to nobody. With it,
    -- 8 instances got 2 % of 1/s burst 1 at ten times the rate. An instance that is alone takes all that is left once
    -- that is refilled within LAST. So its callers get the whole burst, and no refusal comes while the bucket holds a
    -- few tokens.
    --
    -- Where nothing can be leased, nothing is set aside from a need either: it fits as it does a plain bucket.
    --
    -- A refusal says when the need fits the bucket, whichever instance its caller then comes to. A reservation that is
    -- over by then takes nothing from it.
    --
    -- At an instance that is heavier than all are on average urgent callers may wait.
    local overweight = weight * active - weights
    local part, foreign = weight / weights, reserved and reserved.name ~= name
    local waited = (weights - weight) * now - (lasts - weight * instance.last)
    local wait, soon, accrued, spends = 0, 0, math.huge, false
    granted = want
    for i = 1, #bands do spends = spends or ALPHA * bands[i].burst * part < LEASABLE end
    for i = 1, #bands do
        local band = bands[i]
        local rate, burst, level = band.rate, band.burst, band.level
        if foreign then level = level - reserved.tokens end
        local mine = min(rate * part * (now - instance.last), max(burst * part, need))
        local others = max(0, floor(min(rate / weights * waited, ALPHA * level)))
        local fair = max(mine, level - others)
        if spends then fair = max(fair, min(need, level)) end
        local ahead = part == 1 and level <= rate * LAST and level or max(ALPHA * level * part, mine)
        local reserve = min(ALPHA * burst * part - still, ALPHA * burst - outstanding, ahead)
        granted = min(granted, level, fair, max(queued, reserve))
        if need > level or need > fair then
            local share, aside = (need - fair) / (rate * part), ((need - 1) / (1 - ALPHA) + 1 - level) / rate
            local whole = (need - band.level) / rate
            if foreign and reserved.ends > now + whole then whole = (need - level) / rate end
            wait = max(wait, (need - level) / rate, share)
            soon = max(soon, whole, spends and 0 or min(share, aside))
        end
        accrued, band.fair = min(accrued, mine), fair
    end
    granted = max(0, floor(spends and min(granted, queued) or granted))

    if granted < need then
        wait = ceil(min(wait, LONGEST * 1000)) + 1 -- + 1 us, so that a rounding error never makes it too early
        granted, retry_after = 0, ceil(min(soon, LONGEST * 1000)) + 1

        -- With more instances each of them asks more rarely. It was simulated with 200 instances at twice the rate of
        -- 10,000/s. Asks are 19 % of all decisions at 50 ms and 4.9 % at 200 ms. Shares are as even.
        local pace = LONG_PACE
        for i = 1, #bands do
            local rate, burst = bands[i].rate, bands[i].burst
            pace = min(pace, max(PACE, BATCH * active / rate), 0.2 * burst / rate)
        end

        -- A grant begins after a pace, when all of it is refilled. So callers are a pace behind the refill, and in the
        -- first second after a pause 8 instances used 83 % of 100/s. Grants are small then, and slowly become larger.
        if paused then pace = min(pace, SOONEST + LATER * max(0, now - paused)) end

        -- A grant of tokens that will be refilled in the next `ahead` us. With all leased tokens it must fit the burst.
        -- Then nothing stops the refill, and the grant begins when the level, now negative, is back at 0.
        --
        -- A caller at a heavier instance comes after what was granted for later. So lighter ones get nothing that
        -- begins later than in a pace, or in the time in which their need is refilled. And a grant to a heavier one
        -- begins as soon as its tokens are there. One of weight 10 and seven of weight 1 were simulated at 10/s. Of 100
        -- callers at the first 99 wait for at most 0.46 s. It was 0.97 s.
        local most = max_wait
        if overweight < 0 then
            local near = pace
            for i = 1, #bands do near = max(near, need / bands[i].rate) end
            most = min(near, max_wait)
        end
        if wait <= most and not foreign then
            local ahead, later = max(wait, ceil(min(pace, max_wait))), queued
            for i = 1, #bands do
                local band = bands[i]
                local flow = band.rate * ahead
                later = min(later, band.level + flow, band.fair + flow * part, band.burst - outstanding)
            end
            later = floor(later)
            if later >= need then granted, starts_in, retry_after = later, ahead, 0 end
            if later >= need and overweight > 0 then
                local soonest = 0
                for i = 1, #bands do
                    local rate, level, fair = bands[i].rate, bands[i].level, bands[i].fair
                    soonest = max(soonest, (later - level) / rate, (later - fair) / (rate * part))
                end
                starts_in = ceil(min(soonest, LONGEST * 1000)) + 1
            end
        end

        -- A cost near the burst fits only while all others pause. So tokens are reserved for an instance that accrued
        -- its need, of more than one token, and was refused all the same. No other instance gets them until it is
        -- served, or has not asked again when it could be served. If its caller does not wait, the reservation lasts
        -- two paces at most. For a caller who waits at a heavier instance one token is reserved, too: without that
        -- whoever asks just when it is there gets it.
        if retry_after > 0 and (need > 1 or (overweight > 0 and max_wait > 0)) and accrued >= need and not foreign then
            local patience = 2 * max(PACE, pace) + (max_wait > 0 and wait or 0)
            reserved = {name = name, tokens = need, ends = now + patience, renewed = true}
        end
    end

    instance.seq, instance.seen, instance.held, instance.granted = seq, now, still, granted
    if retry_after == 0 then
        -- Tokens for waiting callers need only reach them, unless these sleep until the grant begins. If the grant is
        -- only a part of their need, some may be kept for the next caller. A reserve lasts longer while the bucket is
        -- rich, because further refill would be wasted. That saves a third of the asks at half the rate, an eighth at
        -- nine tenths (simulated). The price: spent tokens count as leased until they are reported. After a sudden rise
        -- of demand, up to 1 % less of the first ten seconds is used than with short leases. No lease is shorter than
        -- an answer takes: it would be over on arrival.
        local long = lease
        if starts_in > 0 then
            long = max(lease, UNKNOWN)
        elseif granted > 0 and (spends or granted == queued) then
            long = min(lease, WAITING)
        else
            local rich, is_rich = RICH, true
            for i = 1, #bands do
                local band = bands[i]
                is_rich = is_rich and band.level >= ALPHA * band.burst
                rich = min(rich, 0.75 * band.burst / band.rate)
            end
            if is_rich then long = max(lease, floor(rich)) end
        end
        local trip = min(round_trip, SLOWEST)
        long = max(long, trip == 0 and UNKNOWN or max(2 * trip, min(4 * trip, UNKNOWN)))

        -- What cannot be leased is spent when it is granted: it is not held, and the refill goes on. A caller may be
        -- admitted by it as late as its lease ends, and a window of the callers' time has room for as much as is
        -- refilled meanwhile. Where that is next to nothing the lease is longer: a process that stalls loses no token.
        instance.starts, used = now + starts_in, used + granted
        if spends and starts_in == 0 and still == 0 then
            local late = LATE
            for i = 1, #bands do late = min(late, floor(CRUMB / bands[i].rate)) end
            instance.expires = now + max(long, late)
        else
            instance.held, instance.expires = still + granted, max(instance.expires, instance.starts + long)
            outstanding = outstanding + granted
        end
        for i = 1, #bands do bands[i].level = bands[i].level - granted end

        if need > 0 then
            if reserved and not foreign then reserved = nil end
            lasts, instance.last = lasts + weight * (instance.starts - instance.last), instance.starts
        elseif granted > 0 and granted >= accrued then
            lasts, instance.last = lasts + weight * (instance.starts - instance.last), instance.starts
        end

        -- A heavier instance whose callers are all served leaves its share to others like it until it asks again: it
        -- weighs one more than all others do on average. Four of weight 10 and four of weight 1 were simulated at 10/s.
        -- Of 100 callers at the first 99 wait for at most 0.31 s. It was 0.64 s.
        if overweight > 0 and queued > 0 and granted >= queued then
            instance.weight = floor((weights - weight) / (active - 1)) + 1
            weights, lasts = weights + instance.weight - weight, lasts + (instance.weight - weight) * instance.last
        end
    end
end

-- Overrides that cannot be read leave the bucket as it is: the instance finds out why.
local told = -1
if ARGV[4] and ARGV[4] ~= '' then
    local published = redis.pcall('HGET', ARGV[4], 'revision')
    published = type(published) ~= 'table' and tonumber(published or 0)
    told = published and published >= 0 and published < 2 ^ 53 and published or -1
end

local left = max(0, instance.expires - now - starts_in) -- of the lease
local reply = {granted, still, starts_in, left, retry_after, active, epoch, version,
               obeyed == quota and '' or obeyed, told}
for i = 1, #bands do reply[10 + i] = floor(bands[i].level * 1000) end
