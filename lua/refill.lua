-- Adds the tokens for the time that has passed, and ends leases that are over. An instance that has not asked for long
-- loses its share.
--
-- Tokens of such a lease leave room from the end of the lease on. Not sooner: until then they may have been spent. Not
-- later: instances that ask rarely would keep a small bucket from filling. (Simulated with 8 instances, a bucket of 4
-- and half its rate: every fifth call was refused.)

local instance, over = nil, {} -- the caller's, if it has an entry; and all that lose something
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
    for i = 1, #bands do
        -- A time longer than the bucket takes to fill counts as that time, so that nothing overflows.
        local band = bands[i]
        local room, flow = band.burst - outstanding - band.level, (instant - time) * band.rate
        if flow >= room then flow = max(0, room) end
        band.level = band.level + flow
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

-- Returns how many tokens may come back to a bandwidth: as many as there is room for, and none that end a pause earlier.
local function room(band)
    local most = band.burst - outstanding
    if band == gate then most = min(most, (now - paused) * band.rate) end
    return max(0, most - band.level)
end

-- Returns how many tokens the caller's instance may bring back unspent if it has `still` so many. What it was granted
-- and does not hold is spent, and may come back as long as a caller might have been admitted by it.
local function returnable(still)
    local spent = instance.held < instance.granted and now < instance.expires and instance.granted or 0
    return instance.held - still + spent
end
