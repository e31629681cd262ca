-- The end of the scripts that change a bucket: writes it back, and replies.
--
-- Numbers are written with all digits: whole ones by %d, which takes half as long as %.0f, others by %.17g. Lua's
-- `..` and tostring would keep 14 digits and lose microseconds.

local to_full, passed = 0, floor((clock - epoch) / 1000)
for i = 1, #bands do to_full = max(to_full, (bands[i].burst - bands[i].level) / bands[i].rate) end
local ttl = ceil((to_full + lease) / 1000) + MARGIN
if known > now then ttl = max(ttl, ceil((known - now) / 1000)) end
local expires
kept, expires = expiry(kept, passed, ttl)

if obeyed ~= found or is_small then call('HSET', key, 'quota', obeyed, 'epoch', epoch, 'version', version) end
if FORMAT ~= '1' then call('HSET', key, 'format', FORMAT) end
if is_small and rank and not heard_at then heard_at = heard end
if heard_at then call('HSET', key, 'rank', rank, 'heard', heard_at) end

local own = entry -- the caller's field
for n = 1, #over + (instance and 1 or 0) do
    local one = over[n] or instance
    local text = not one.struck and format('%d %d %d %d %d %d %d', one.held, one.seen,
        max(0, one.expires - one.seen), one.granted, one.seq, one.weight, one.seen - one.last)
    if text and (one.known > one.seen or (one.granted > 0 and one.starts > one.seen)) then
        text = text .. format(' %d %d', max(0, one.starts - one.seen), max(0, one.known - one.seen))
    end
    if one.name == name then
        own = text
    elseif text then
        call('HSET', key, one.name, text)
    else
        call('HDEL', key, one.name)
    end
end

level = bands[1].level
if #bands > 1 then
    level = format('%.17g', level)
    for i = 2, #bands do level = level .. format(' %.17g', bands[i].level) end
end
shares = format('%d %d %d', active, weights, lasts)
times = format('%d %d %d %d', time, time - swept, kept, since)
if known > time or reserved then times = times .. format(' %d %d', max(0, known - time), reserved and 1 or 0) end
if own then
    call('HSET', key, 'level', level, 'outstanding', outstanding, 'used', used, 'shares', shares, 'times', times, name,
        own)
else
    call('HSET', key, 'level', level, 'outstanding', outstanding, 'used', used, 'shares', shares, 'times', times)
    if entry then call('HDEL', key, name) end
end

if reserved and reserved.renewed then
    call('HSET', key, 'reserved', format('%d %.17g ', reserved.tokens, reserved.ends) .. reserved.name)
elseif was_reserved and not reserved then
    call('HDEL', key, 'reserved')
end
if was_paused and not paused then call('HDEL', key, 'paused') end
if is_small then call('HDEL', key, 'q', 's', 'l', 'h') end
if expires then call('PEXPIRE', key, format('%d', kept - passed)) end
return reply
