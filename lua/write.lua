-- What the scripts end with that change a bucket: it is written back, and the reply sent.
--
-- When it expires is said anew only where that would be too early, or too late by far: once in SLACK, which saves a
-- tenth of the time. It goes by the server's clock, as the server does, and not by `now`: that stands still when the
-- clock steps back, and the end would come unseen.

local MARGIN = 5000 -- how much longer than needed an untouched bucket is kept: longer than any lease (ms)
local SLACK = 1000  -- and how much longer than that at the most, so that few calls have to say it anew (ms)

local to_full, passed = 0, floor((clock - epoch) / 1000)
for i = 1, #rates do to_full = max(to_full, (bursts[i] - levels[i]) / rates[i]) end
local ttl = ceil((to_full + lease) / 1000) + MARGIN
if known > now then ttl = max(ttl, ceil((known - now) / 1000)) end
local enough = passed + min(ttl, LONGEST)
local expires = kept < enough or kept > enough + 2 * SLACK
if expires then kept = enough + SLACK end

if renewed then redis.call('HSET', key, 'q', pack(QUOTA, version, since, epoch) .. obeyed) end

local ago = min(time - swept, 4294967295) -- that it was long ago is all that a longer one would say
state = pack(STATE, time, ago, outstanding, active, weights, lasts, reserved and 1 or 0, kept, levels[1])
for i = 2, #levels do state = state .. pack('<d', levels[i]) end
if known > now then state = state .. pack('<i7', known) end

for n = 1, #over + (host and 1 or 0) do
    local one = over[n] or host
    local packed = pack(HOST, one.expires, one.held, one.seen, one.last, one.granted, one.seq, one.weight)
    if one.known > now or (one.granted > 0 and one.starts ~= one.seen) then
        packed = packed .. pack(HOST_MORE, one.starts, one.known)
    end
    if one.name == name then
        entry = not one.struck and packed
    elseif one.struck then
        redis.call('HDEL', key, one.name)
    else
        redis.call('HSET', key, one.name, packed)
    end
end
if entry then
    redis.call('HSET', key, 's', state, name, entry)
else
    redis.call('HSET', key, 's', state)
    if field[3] then redis.call('HDEL', key, name) end
end

if reserved and reserved.renewed then
    redis.call('HSET', key, 'r', pack(RESERVED, reserved.ends, reserved.tokens) .. reserved.name)
end
if expires then redis.call('PEXPIRE', key, string.format('%.0f', kept - passed)) end
return reply
