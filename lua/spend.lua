-- Spends tokens of plain buckets: those of which nobody leases. Each is refilled, compared, and charged.
--
-- A caller has its answer later than the script ran, and is admitted then, unless its deadline is over. So a window of
-- the callers' time may hold what was refilled in a deadline before it: b + r * (t + deadline) bounds the admissions.
-- A spend has no number. If its answer is lost so are its tokens, and a repetition is another spend. But where the
-- server was stopped until nobody waits for the answer any more, nothing is charged.
--
-- Several buckets may be charged together, all or none. One script has many such groups. What happens to one of them
-- is nothing to the others.
--
-- KEYS          buckets, group after group
-- ARGV[1]       rules  (name of the hash of overrides; '': nobody wants to know their revision)
-- ARGV[2]       latest (us since the epoch; '': never)  from then on all buckets are ELSE
-- ARGV[2 n + 1] quota of bucket n, written as in the hash
-- ARGV[2 n + 2] of bucket n, numbers on one line:
--   cost   (tokens)
--   group  (how many buckets are charged together, from this one on; of the others of the group it is not read)
--   age    (us since the caller's quota was set)
--   fill   (share of the burst at which the bucket begins if it is not there)
--   claim  (the rank of the caller's quota, two numbers)
-- returns {revision of the overrides (-1: not seen), now (us since the epoch), and of each bucket:
--          verdict, retry_after (us), epoch (us), level of each bandwidth of the caller's quota (thousandths)...}
-- verdict: CHARGED, SHORT, or ELSE: take has to say what is there. It says so where the quota is another one, where
--          tokens are leased or reserved, and where something is wrong. In a group one ELSE is ELSE for all, and SHORT
--          leaves the rest as they are.

local CHARGED, SHORT, ELSE = 1, 0, 2
local OVER = 8000000    -- a lease is over so long after the bucket changed last (us),
local QUIET = 10000000  -- and no instance asks any more that did not ask in this time (us)

-- Forgets the instances of a bucket that was left alone for long.
local function forget(key)
    local fields = call('HGETALL', key)
    for i = 1, #fields, 2 do
        if string.sub(fields[i], 1, 9) == 'instance:' or fields[i] == 'reserved' then call('HDEL', key, fields[i]) end
    end
    call('HSET', key, 'outstanding', 0, 'shares', '0 0 0')
end

local reply, quotas = {-1, clock}, {} -- what each text of a quota says: most buckets of one script have the same

-- Charges the buckets from `first` to `last`, all or none; returns them, or nil where take has to decide.
local function spend(first, last)
    local group, is_short = {}, false
    for n = first, last do
        local key, quota = KEYS[n], ARGV[2 * n + 1]
        local cost, age, fill, claim = match(ARGV[2 * n + 2], '^(%d+) %d+ (%d+) (%S+) (%d+ %d+)$')
        local bands, levels, wait, now, refund, over = quotas[quota], {}, 0, 0, 0, nil
        local found, epoch, level, shares, times, used, rank, written = unpack(call('HMGET', key,
            'quota', 'epoch', 'level', 'shares', 'times', 'used', 'rank', 'format'))
        local time, swept, kept, since, more, heard = 0, 0, 0, nil, '', nil
        if found then
            if found ~= quota or claim ~= (rank or '0 0') or (written or '1') ~= FORMAT then return nil end
            heard = rank and call('HGET', key, 'heard') + 0
            time, swept, kept, since, more = match(times, '^(%d+) (%d+) (-?%d+) (-?%d+)(.*)$')
            now = max(time + 0, clock - epoch)
            local reserves = '0'
            if more ~= '' then
                refund, reserves = match(more, '^ (%d+) ([01])$')
                refund = max(0, refund - (now - time))
            end
            if reserves ~= '0' or string.sub(shares, 1, 2) ~= '0 ' then
                if now - time < QUIET or refund > 0 then return nil end
                over = call('HGET', key, 'outstanding') + 0
            end
        elseif #call('HGETALL', key) > 0 then
            return nil
        end

        local at, tokens = 1, level
        for i = 1, #bands do
            local band, elapsed, room = bands[i], now - time, nil
            if not found then
                tokens = floor(band.burst * fill)
            elseif #bands > 1 then
                tokens, at = match(level, '^(-?%d[%d.e+-]*) ?()', at)
            end
            if over then
                tokens = tokens + min(OVER * band.rate, max(0, band.burst - over - tokens))
                elapsed = elapsed - OVER
            end
            room, tokens = band.burst - tokens, tokens + 0
            tokens = elapsed * band.rate >= room and tokens + max(0, room) or tokens + elapsed * band.rate
            levels[i], wait = tokens, max(wait, (cost - tokens) / band.rate)
        end
        if wait > 0 then
            if not found then return nil end -- take begins it
            wait, is_short = ceil(min(wait, LONGEST * 1000)) + 1, true
        end
        since = max(since or -2 ^ 53, now - age + (string.sub(claim, 1, 2) == '0 ' and 0 or FAR))
        group[n] = {wait, found and epoch + 0 or clock, levels, cost, bands, now, now - time + swept, kept + 0, since,
                    refund, over, found, claim, heard, used}
    end

    for n = first, is_short and first - 1 or last do
        local key = KEYS[n]
        local _, epoch, levels, cost, bands, now, swept, kept, since, refund, over, found, claim, heard, used =
            unpack(group[n], 1, 15)
        local level, to_full = nil, 0
        for i = 1, #bands do
            local left = levels[i] - cost
            levels[i], to_full = left, max(to_full, (bands[i].burst - left) / bands[i].rate)
            level = i == 1 and left or format(i == 2 and '%.17g %.17g' or '%s %.17g', level, left)
        end
        local passed = floor((clock - epoch) / 1000)
        local times, is_due
        kept, is_due = expiry(kept, passed, max(ceil((to_full + bands.lease) / 1000) + MARGIN, ceil(refund / 1000)))
        times = format('%d %d %d %d', now, swept, kept, since)
        if refund > 0 then times = times .. format(' %d 0', refund) end
        if found then
            if over then forget(key) end
            call('HSET', key, 'level', level, 'used', (tonumber(used or 0) or 0) + cost, 'times', times)
        else
            call('HSET', key, 'quota', ARGV[2 * n + 1], 'epoch', epoch, 'version', 1, 'outstanding', 0, 'shares', '0 0 0',
                'level', level, 'used', cost, 'times', times)
            if FORMAT ~= '1' then call('HSET', key, 'format', FORMAT) end
        end
        if (heard and now - heard >= HEARD) or (claim ~= '0 0' and not found) then
            call('HSET', key, 'rank', claim, 'heard', now)
        end
        if is_due then call('PEXPIRE', key, format('%d', kept - passed)) end
    end
    return group, is_short
end

local is_late, first = ARGV[2] ~= '' and clock >= ARGV[2] + 0, 1
while first <= #KEYS do
    local last = first + match(ARGV[2 * first + 2], '^%d+ (%d+)') - 1
    for n = first, last do
        local quota = ARGV[2 * n + 1]
        if not quotas[quota] then
            local bands, lease = bandwidths(quota)
            bands.lease, quotas[quota] = lease, bands
        end
    end
    local is_fine, group, is_short = false, nil, false
    if not is_late then is_fine, group, is_short = pcall(spend, first, last) end
    for n = first, last do
        local one, at = is_fine and group and group[n], #reply
        if one then
            reply[at + 1], reply[at + 2], reply[at + 3] = is_short and one[1] > 0 and SHORT or CHARGED, one[1], one[2]
        else
            reply[at + 1], reply[at + 2], reply[at + 3] = ELSE, 0, 0
        end
        for i = 1, #quotas[ARGV[2 * n + 1]] do reply[at + 3 + i] = one and floor(one[3][i] * 1000) or 0 end
    end
    first = last + 1
end

-- Overrides that cannot be read leave the buckets as they are: the instance finds out why.
if ARGV[1] ~= '' then
    local published = redis.pcall('HGET', ARGV[1], 'revision')
    published = type(published) ~= 'table' and tonumber(published or 0)
    reply[1] = published and published >= 0 and published < 2 ^ 53 and published or -1
end
return reply
