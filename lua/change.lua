-- Changes overrides, all or none, unless somebody else has changed them since the caller looked.
--
-- The hash has the fields revision, form (its format), and one for each override. The revision is at least the clock, in hundredths
-- of a second: so it is a larger one even after the hash was lost.
--
-- KEYS[1] rules      (the hash)
-- ARGV[1] log        (a stream in the same slot, of the last changes)
-- ARGV[2] revision   (the one that the caller saw; 0: there was no hash)
-- ARGV[3] format     (of the hash, as the caller writes it)
-- ARGV[4] most       (overrides that there may be)
-- ARGV[5] who, ARGV[6] why
-- ARGV[7...] field, text  (of each override that changes; '' removes it)
-- returns {1, revision} or, if it is another one than the caller saw, {0, revision}

local rules, log, format = KEYS[1], ARGV[1], ARGV[3]
local KEPT = 1000 -- changes in the log, about

local published, known = unpack(redis.call('HMGET', rules, 'revision', 'form'))
if known and known ~= format then
    return redis.error_reply('FORMAT these overrides are of format ' .. known .. ', and this release reads ' .. format)
end
local revision = tonumber(published or '0')
if revision ~= tonumber(ARGV[2]) then return {0, revision} end

local clock = redis.call('TIME')
local after = math.max(revision + 1, math.floor(clock[1] * 100 + clock[2] / 10000))
local put = {} -- written together: a thousand calls take three times as long
redis.call('HSET', rules, 'revision', string.format('%.0f', after), 'form', format)
for i = 7, #ARGV, 2 do
    local field, text = ARGV[i], ARGV[i + 1]
    if (#ARGV - i) / 2 < KEPT then -- the log has no room for more
        local old = redis.call('HGET', rules, field) or ''
        redis.call('XADD', log, 'MAXLEN', '~', KEPT, '*', 'revision', string.format('%.0f', after), 'field', field,
            'old', old, 'new', text, 'who', ARGV[5], 'why', ARGV[6])
    end
    if text == '' then
        redis.call('HDEL', rules, field)
    else
        put[#put + 1], put[#put + 2] = field, text
        if #put == 1000 then
            redis.call('HSET', rules, unpack(put))
            put = {}
        end
    end
end
if #put > 0 then redis.call('HSET', rules, unpack(put)) end
return {1, after}
