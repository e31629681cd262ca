-- Leases whole tokens to one instance, from every bandwidth or from none, within the instance's fair share.
--
-- ARGV[3] the ask, numbers on one line:
--   seq                   (an ask that granted answers its repetition with the same tokens)
--   age                   (us since the instance's quota was set: of two that differ the younger one counts)
--   epoch_seen            (us: of the bucket that the instance knows; 0: none)
--   fill                  (share of the burst at which a lost bucket begins)
--   need, queued, want    (tokens: the smallest useful grant, what callers wait for, the target)
--   held, back            (tokens of earlier grants: still here, returned unspent; the rest is spent)
--   max_wait, round_trip  (us: how far in the future a grant may begin, how long answers take)
--   weight                (a whole number: an instance of weight 2 has twice the share of one of weight 1)
-- returns {granted, kept, starts_in (us), lease (us), retry_after (us), level, active_instances, epoch (us), version,
--          quota ('' unless the bucket obeys another one than the caller's)}

local seq, age, epoch_seen, fill, need, queued, want, held, back, max_wait, round_trip, weight =
    match(ARGV[3], '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
seq, age, epoch_seen, fill, need, queued = seq + 0, age + 0, epoch_seen + 0, fill + 0, need + 0, queued + 0
want, held, back, max_wait, round_trip, weight = want + 0, held + 0, back + 0, max_wait + 0, round_trip + 0, weight + 0

local ALPHA = 0.5       -- the share of a bucket that all instances together may hold in reserve
local RICH = 1500000    -- the longest lease while the bucket is rich (us)
local WAITING = 250000  -- the longest lease of tokens for who waits: a busy machine has woken them by then (us)
local UNKNOWN = 100000  -- the shortest lease of an instance that does not know yet how long an answer takes (us)
local SLOWEST = 2000000 -- the longest round trip that a lease makes up for (us)
local PACE = 50000      -- the shortest spacing of one instance's asks at a dry bucket, if that is no more than a fifth
                        -- of what it fills in (us)
local LONG_PACE = 200000 -- and the longest: where many instances share it, or little flows in (us)
local BATCH = 25        -- how many tokens an instance accrues between two asks at a dry bucket, if that is not too long

if not found then
    since = now - age
    for i = 1, #levels do levels[i] = floor(bursts[i] * (epoch_seen > 0 and fill or 1)) end
end
instance = instance or {name = name, seq = -1, held = 0, expires = 0, last = now, seen = now, granted = 0, starts = 0,
                        weight = 0, known = 0}

local granted, still, starts_in, retry_after = 0, 0, 0, 0
local repeated = seq == instance.seq and instance.granted > 0
if repeated then
    granted, still, starts_in = instance.granted, instance.held - instance.granted, max(0, instance.starts - now)
elseif seq >= instance.seq then -- an older one is a late duplicate: nobody waits for it
    -- With another weight an instance keeps what it accrued; with its first one it begins.
    if instance.weight ~= weight then
        weights, lasts = weights - instance.weight, lasts - instance.weight * instance.last
        if instance.weight == 0 then active, instance.last = active + 1, now end
        instance.weight = weight
        weights, lasts = weights + weight, lasts + weight * instance.last
    end

    -- The younger quota wins, whoever asks first: an old process that meets a key anew does not bring its own back.
    local set = now - age
    if quota ~= obeyed and set >= since then
        -- What was used stays used, as a share of the burst; so two quotas in turn mint nothing. A bandwidth that was
        -- not there before begins as poor as the poorest. Tokens already leased count against the new burst at once.
        local parts, poorest = {}, 1
        for i = 1, #levels do
            parts[i] = levels[i] / bursts[i]
            poorest = min(poorest, parts[i])
        end
        obeyed, version = quota, version + 1
        rates, bursts, lease = bandwidths(quota)
        levels = {}
        for i = 1, #bursts do
            levels[i] = min((parts[i] or poorest) * bursts[i], max(0, bursts[i] - outstanding))
        end
    end
    if quota == obeyed then since = max(since, set) end

    -- What the instance reports: spent tokens are gone, unspent ones go back as far as there is room.
    still = min(held, instance.held)
    local unspent = min(back, instance.held - still)
    outstanding = outstanding - (instance.held - still)
    if unspent > 0 then
        for i = 1, #levels do levels[i] = levels[i] + min(unspent, max(0, bursts[i] - outstanding - levels[i])) end
    end

    -- How many tokens the instance may have now, when `need` is expected to fit (us), and what it had accrued.
    --
    -- Each active instance accrues its share of the rate, by its weight, from when it was last served. It may take what
    -- it accrued (mine), or what is left when the others' accruals are set aside, whichever is more. But half of what
    -- is there is for whoever asks: set aside in full for 20 instances, a bucket of 10 was full and yet refused every
    -- third caller at twice its rate (simulated).
    local part, foreign = weight / weights, reserved and reserved.name ~= name
    local waited = (weights - weight) * now - (lasts - weight * instance.last)
    local wait, accrued, fairs = 0, math.huge, max_wait > 0 and {0}
    granted = want
    for i = 1, #rates do
        local rate, burst, level = rates[i], bursts[i], levels[i]
        if foreign then level = level - reserved.tokens end
        local mine = min(rate * part * (now - instance.last), max(burst * part, need))
        local others = min(rate / weights * waited, ALPHA * level)
        local fair = max(mine, level - max(0, others))
        local cap = min(ALPHA * burst * part - still, ALPHA * burst - outstanding)
        granted = min(granted, level, fair, max(queued, min(cap, max(ALPHA * level * part, mine))))
        if need > level or need > fair then wait = max(wait, (need - level) / rate, (need - fair) / (rate * part)) end
        accrued = min(accrued, mine)
        if fairs then fairs[i] = fair end
    end
    granted = max(0, floor(granted))

    if granted < need then
        wait = ceil(min(wait, LONGEST * 1000)) + 1 -- + 1 us: never a rounding error too early
        granted, retry_after = 0, wait

        -- The more instances, the rarer each of them asks: 200 at 50 ms cost 19 % of all decisions at twice the rate,
        -- at 200 ms 4.9 %, and were served no less evenly (simulated; 10,000/s).
        local pace = LONG_PACE
        for i = 1, #rates do pace = min(pace, max(PACE, BATCH * active / rates[i]), 0.2 * bursts[i] / rates[i]) end

        -- What will have flowed in `ahead` us from now. Together with all that is leased it must fit the burst: then
        -- nothing stops the refill before the grant begins, and it begins when the level, now negative, is back at 0.
        if wait <= max_wait and not foreign then
            local ahead, later = max(wait, ceil(min(pace, max_wait))), queued
            for i = 1, #rates do
                local flow = rates[i] * ahead
                later = min(later, levels[i] + flow, fairs[i] + flow * part, bursts[i] - outstanding)
            end
            later = floor(later)
            if later >= need then granted, starts_in, retry_after = later, ahead, 0 end
        end

        -- A cost near the burst fits only while all others pause. So an instance that accrued its need, and was refused
        -- all the same, has it reserved: nobody draws on that until it is served, or has not come back when it could
        -- be; two paces at the most if its caller does not wait.
        if retry_after > 0 and accrued >= need and not foreign then
            local patience = 2 * max(PACE, pace) + (max_wait > 0 and wait or 0)
            reserved = {name = name, tokens = need, ends = now + patience, renewed = true}
        end
    end

    instance.seq, instance.seen, instance.held, instance.granted = seq, now, still, granted
    if retry_after == 0 then
        -- Tokens for callers who wait already need no longer than to reach them, unless those sleep until a grant
        -- begins; of a part of what they wait for some may be kept for who is next. A reserve lasts longer where tokens
        -- abound: what would flow in meanwhile would be wasted anyway, and a third of the calls is saved at half the
        -- rate, an eighth at nine tenths (simulated). The price: spent tokens count as leased until they are reported,
        -- so when demand leaps up, up to 1 % less of the first ten seconds is used than with short leases. And no lease
        -- is shorter than answers take: an instance would find it over on arrival.
        local long = lease
        if starts_in > 0 then
            long = max(lease, UNKNOWN)
        elseif granted > 0 and granted == queued then
            long = min(lease, WAITING)
        else
            local rich, is_rich = RICH, true
            for i = 1, #rates do
                is_rich = is_rich and levels[i] >= ALPHA * bursts[i]
                rich = min(rich, 0.75 * bursts[i] / rates[i])
            end
            if is_rich then long = max(lease, floor(rich)) end
        end
        local trip = min(round_trip, SLOWEST)
        long = max(long, trip == 0 and UNKNOWN or max(2 * trip, min(4 * trip, UNKNOWN)))

        instance.starts, instance.held = now + starts_in, still + granted
        instance.expires = max(instance.expires, instance.starts + long)
        outstanding = outstanding + granted
        for i = 1, #levels do levels[i] = levels[i] - granted end

        if need > 0 then
            if reserved and not foreign then reserved = nil end
            lasts, instance.last = lasts + weight * (instance.starts - instance.last), instance.starts
        elseif granted > 0 and granted >= accrued then
            lasts, instance.last = lasts + weight * (instance.starts - instance.last), instance.starts
        end
    end
end

local left = max(0, instance.expires - now - starts_in) -- of the lease
local reply = {granted, still, starts_in, left, retry_after, floor(min(unpack(levels))), active, epoch, version,
               obeyed == quota and '' or obeyed}
