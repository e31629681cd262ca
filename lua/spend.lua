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
-- ARGV[3]       age    (us since the caller's quotas were set)
-- ARGV[2 n + 2] of bucket n, as in its field `q`: the caller's quota, and its rank unless that is 0 0
-- ARGV[2 n + 3] of bucket n, numbers on one line; '': 1 1 1, and that age
--   cost   (tokens)
--   group  (how many buckets are charged together, from this one on; of the others of the group it is not read)
--   fill   (share of the burst at which the bucket begins if it is not there)
--   age    (us since this quota was set)
-- returns {revision of the overrides (-1: not seen), now (us since the epoch), and of each bucket:
--          verdict, retry_after (us), epoch (us), level of each bandwidth of the caller's quota (thousandths)...}
-- verdict: CHARGED, SHORT, or ELSE: take has to say what is there. It says so where the quota is another one, where
--          tokens are leased or reserved, where a pause is remembered, and where something is wrong. In a group one ELSE
--          is ELSE for all, and SHORT leaves the rest as they are.
--
-- A bucket that remembers refunds stays large and keeps its instances, for one may repeat its give_back. Take sweeps those
-- that are gone: it has to say what is there if it did not for SILENT.
--
-- There is no function, for a server takes 0.2 us to define one, a twentieth of all.

local CHARGED, SHORT, ELSE = 1, 0, 2
local OVER = 8000000    -- a lease is over so long after the bucket changed last (us),
local QUIET = 10000000  -- and no instance asks any more that did not ask in this time (us)

local is_late = ARGV[2] ~= '' and clock >= ARGV[2] + 0
local reply, at, first, quotas = {-1, clock, 0, 0, 0, 0}, 3, 1, {}
while first <= #KEYS do
    local group, last, verdict, n = {}, first, is_late and ELSE or CHARGED, first
    local key, bands, place, tokens, cost, wait, epoch, now, since, kept, used, heard, said, large -- of bucket n
    repeat
        if n > first then
            group[n - 1] = {key, bands, place, tokens, cost, wait, epoch, now, since, kept, used, heard, said, large}
        end
        local wanted, line, fill, age = ARGV[2 * n + 2], ARGV[2 * n + 3], 1, ARGV[3]
        key, bands, place, cost = KEYS[n], quotas[wanted], at, 1 -- most buckets of one script have the same quota
        if not bands then
            local from, text, claim = 1, wanted, match(wanted, '@.+$')
            bands = {false, text = wanted, older = 0} -- a table that grows is copied: its first place is there at once
            if claim then
                text = match(wanted, '^[^@]+')
                bands.text, bands.claim = text .. '@', claim
                if not match(claim, '^@0 ') then bands.older = -FAR end
            end
            local many = 0
            repeat
                local amount, seconds, burst, after = match(text, '^([^/]+)/(%d+):(%d+) ?()', from)
                many, from = many + 1, after
                bands[many] = {rate = amount / seconds / 1000000, burst = burst + 0}
            until from > #text
            quotas[wanted] = bands
        end
        at = at + 3 + #bands
        if line ~= '' then
            local size -- of the group
            cost, size, fill, age = match(line, '^(%d+) (%d+) (%S+) (%d+)$')
            cost = cost + 0
            if n == first then last = first + size - 1 end
        end

        -- What is there: a small bucket, a large one that may become small, none, or something else.
        local time, levels, over, level
        epoch, time, since, kept, used, heard, said, large = clock, 0, -FAR, -FAR, 0, nil, nil, nil
        if verdict ~= ELSE then
            local found = redis.pcall('HMGET', key, 'q', 's', 'quota')
            said, large = found[1], found[3]
            if said then
                epoch, time, since, kept, used, level = match(found[2] or '', '^(%d+) (%d+) (-?%d+) (-?%d+) (-?%d+) (%d+)$')
                if said ~= bands.text or not epoch then verdict = ELSE end
                if bands[2] then levels = call('HGET', key, 'l') end
                if bands.claim then
                    local rank, at = match(call('HGET', key, 'h') or '', '^(.*) (%d+)$')
                    if rank == bands.claim then heard = at + 0 else verdict = ELSE end
                end
            elseif large then
                local seen = call('HMGET', key, 'epoch', 'level', 'shares', 'times', 'used', 'rank', 'heard', 'outstanding',
                    'paused', 'format')
                local active, leased, more = match(seen[3] or '', '^(%d+) '), match(seen[8] or '', '^%d+$'), nil
                local swept
                time, swept, since, more = match(seen[4] or '', '^(%d+) (%d+) %-?%d+ (%-?%d+)(.*)$')
                epoch, levels, used = match(seen[1] or '', '^%d+$'), seen[2], tonumber(seen[5]) or 0
                heard = seen[6] and tonumber(seen[7])
                if (seen[6] and large .. '@' .. seen[6] or large) ~= wanted or seen[9] or (seen[10] or '1') ~= FORMAT
                    or not (epoch and active and leased and since) or heard == nil then
                    verdict = ELSE
                else
                    local passed, refund, reserved = max(0, clock - epoch - time), match(more, '^ (%d+) ([01])$')
                    if active ~= '0' or reserved == '1' then over = leased + 0 end
                    large = {swept = swept + passed, known = max(0, (refund or 0) - passed)} -- ago, and for so long yet
                    if over and passed < QUIET or large.known > 0 and (over or large.swept >= SILENT) then verdict = ELSE end
                    since = floor(since / 1000000)
                end
            elseif found.err or #call('HGETALL', key) > 0 then
                verdict = ELSE
            end
        end

        if verdict ~= ELSE then
            epoch, time, since, kept = epoch + 0, time + 0, since + 0, kept + 0
            now, wait, tokens = clock - epoch, 0, {0}
            if now < time then now = time end
            local from = 1
            for i = 1, #bands do
                local band, elapsed, is = bands[i], now - time, level
                if levels then is, from = match(levels, '^(-?%d[%d.e+-]*) ?()', from) end
                if said or large then is = tonumber(is) else is = floor(band.burst * fill) end
                if not is then is, verdict = 0, ELSE end
                if over then
                    is, elapsed = is + min(OVER * band.rate, max(0, band.burst - over - is)), elapsed - OVER
                end
                local room, flow = band.burst - is, elapsed * band.rate
                if room > 0 then is = is + (flow < room and flow or room) end
                if is < cost then local lacks = (cost - is) / band.rate; if lacks > wait then wait = lacks end end
                tokens[i] = is
            end
            if wait > 0 and verdict ~= ELSE then verdict = (said or large) and SHORT or ELSE end -- take begins it
            local set = floor((now - age - bands.older) / 1000000)
            if set > since then since = set end
        end
        n = n + 1
    until n > last

    while true do
        n = n - 1
        if verdict == CHARGED then
            local whole, instant, to_full, passed = 0, now, 0, floor((clock - epoch) / 1000)
            for i = 1, #bands do
                local band, is = bands[i], tokens[i] - cost
                local lasts = (band.burst - is) / band.rate
                tokens[i] = is
                if lasts > to_full then to_full = lasts end
            end
            if large and large.known > 0 then
                local levels = format('%.17g', tokens[1])
                for i = 2, #bands do levels = format('%s %.17g', levels, tokens[i]) end
                kept = passed + SLACK + max(min(ceil(to_full / 1000) + MARGIN, LONGEST), ceil(large.known / 1000))
                call('HSET', key, 'level', levels, 'used', used + cost, 'times',
                    format('%d %d %d %d %d 0', now, large.swept, kept, since * 1000000, large.known))
                if bands.claim and now - heard >= HEARD then call('HSET', key, 'heard', now) end
                call('PEXPIRE', key, kept - passed)
            else
                if large then -- it becomes small
                    local fields = call('HGETALL', key)
                    for i = 1, #fields, 2 do
                        if fields[i] ~= 'refused' and fields[i] ~= 'shadow' then call('HDEL', key, fields[i]) end
                    end
                end
                if #bands == 1 then
                    whole = floor(tokens[1])
                    instant = max(0, now - floor((tokens[1] - whole) / bands[1].rate))
                else
                    local levels = format('%.17g', tokens[1])
                    for i = 2, #bands do levels = format('%s %.17g', levels, tokens[i]) end
                    call('HSET', key, 'l', levels)
                end
                local enough = passed + min(ceil(to_full / 1000) + MARGIN, LONGEST)
                local is_due = kept * 1000 < enough or kept * 1000 > enough + 2 * SLACK
                if is_due then kept = ceil((enough + SLACK) / 1000) end
                local state = format('%d %d %d %d %d %d', epoch, instant, since, kept, used + cost, whole)
                if said then call('HSET', key, 's', state) else call('HSET', key, 'q', bands.text, 's', state) end
                if FORMAT ~= '1' then call('HSET', key, 'format', FORMAT) end
                if bands.claim and not (said and now - heard < HEARD) then
                    call('HSET', key, 'h', format('%s %d', bands.claim, large and now - heard < HEARD and heard or now))
                end
                if is_due then call('PEXPIRE', key, kept * 1000 - passed) end
            end
        end
        reply[place], reply[place + 1], reply[place + 2] = verdict, 0, verdict == ELSE and 0 or epoch
        if verdict == SHORT then
            if wait > 0 then reply[place + 1] = ceil(min(wait, LONGEST * 1000)) + 1 else reply[place] = CHARGED end
        end
        for i = 1, #bands do reply[place + 2 + i] = verdict == ELSE and 0 or floor(tokens[i] * 1000) end
        if n == first then break end
        key, bands, place, tokens, cost, wait, epoch, now, since, kept, used, heard, said, large = unpack(group[n - 1], 1, 14)
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
