-- Lets flow in what may until now, and takes from instances what they no longer have: tokens whose lease is over, and
-- the share, if they asked long ago.
--
-- Such tokens leave room from the end of the lease on, no sooner: they may have been spent till then. And no later:
-- instances that ask rarely would keep a small bucket from filling (8 instances, a bucket of 4, half its rate: every
-- fifth call was refused, simulated).

local instance, over = nil, {} -- the caller's, if it has an entry; and all from whom something is taken
for n = 1, #entries, 2 do
    local held, seen, lasting, granted, seq, weight, served, more =
        match(entries[n + 1], '^(%d+) (%d+) (%d+) (%d+) (-?%d+) (%d+) (-?%d+)(.*)$')
    local starts, refund = 0, 0
    if more ~= '' then starts, refund = match(more, '^ (%d+) (%d+)$') end
    seen = seen + 0
    local one = {name = entries[n], held = held + 0, seen = seen, expires = seen + lasting, granted = granted + 0,
                 seq = seq + 0, weight = weight + 0, last = seen - served, starts = seen + starts,
                 known = seen + refund}
    if one.name == name then instance = one end
    if one.expires <= now and (one.held > 0 or seen + ACTIVE <= now) then over[#over + 1] = one end
end
if #over > 1 then table.sort(over, function(one, other) return one.expires < other.expires end) end

for n = 1, #over + 1 do
    local ended = over[n]
    local instant = ended and max(time, ended.expires) or now
    for i = 1, #rates do
        -- A time longer than it takes to fill is as good as that time, and cannot overflow.
        local room, flow = bursts[i] - outstanding - levels[i], (instant - time) * rates[i]
        if flow >= room then flow = max(0, room) end
        levels[i] = levels[i] + flow
    end
    time = instant
    if ended then
        outstanding = outstanding - ended.held
        ended.held, ended.granted = 0, 0
    end
end

-- An entry without weight has no share, and is no active instance; it only remembers a refund.
for n = 1, #over do
    local ended = over[n]
    if ended.seen + ACTIVE <= now then
        if ended.weight > 0 then
            active, weights, lasts = active - 1, weights - ended.weight, lasts - ended.weight * ended.last
        end
        ended.weight, ended.struck = 0, ended.known <= now
    end
end
if instance and instance.struck then instance = nil end
