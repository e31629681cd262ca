-- Lets flow in what may until now, and takes from hosts what they no longer have: tokens whose lease is over, and the
-- share, if they asked long ago.
--
-- Such tokens leave room from the end of the lease on, no sooner: they may have been spent till then. And no later:
-- hosts that ask rarely would keep a small bucket from filling (8 hosts, a bucket of 4, half its rate: every fifth call
-- was refused, simulated).

local host, over = nil, {} -- the caller, if it has an entry, and all from whom something is taken
for n = 1, #entries, 2 do
    local packed = entries[n + 1]
    local expires, held, seen, last, granted, seq, weight, at = unpack(HOST, packed)
    local one = {name = entries[n], expires = expires, held = held, seen = seen, last = last, granted = granted,
                 seq = seq, weight = weight, starts = seen, known = 0}
    if at <= #packed then one.starts, one.known = unpack(HOST_MORE, packed, at) end
    if one.name == name then host = one end
    if expires <= now and (held > 0 or seen + ACTIVE <= now) then over[#over + 1] = one end
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

-- An entry without weight has no share, and is no active host; it only remembers a refund.
for n = 1, #over do
    local ended = over[n]
    if ended.seen + ACTIVE <= now then
        if ended.weight > 0 then
            active, weights, lasts = active - 1, weights - ended.weight, lasts - ended.weight * ended.last
        end
        ended.weight, ended.struck = 0, ended.known <= now
    end
end
if host and host.struck then host = nil end
