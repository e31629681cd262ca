-- A plain token bucket, full at first: refills, then gives or is told. bucket.py is the same arithmetic.
--
-- KEYS[1] bucket  (a hash: level, at (us))
-- ARGV[1] rate (tokens/s), ARGV[2] burst (tokens)
-- ARGV[3] verb: whole (all tokens or none), part (up to so many), tell (so many were spent); ARGV[4] tokens
-- returns what was granted; to `tell` the level left, rounded down

local key, rate, burst, verb, tokens = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local state = redis.call('HMGET', key, 'level', 'at')
local level, at = tonumber(state[1] or burst), tonumber(state[2] or now)

if now > at then
    level = math.min(burst, level + rate * (now - at) / 1000000)
    at = now
end
local answer = 0
if verb == 'tell' then
    level = level - tokens
    answer = math.floor(level)
elseif level >= tokens then
    answer = tokens
    level = level - tokens
elseif verb == 'part' then
    answer = math.max(0, math.floor(level))
    level = level - answer
end

-- Doubles need 17 digits. Once it is full again it need not be remembered.
redis.call('HSET', key, 'level', string.format('%.17g', level), 'at', string.format('%.0f', at))
redis.call('PEXPIRE', key, string.format('%.0f', math.ceil((burst - level) / rate * 1000) + 1000))
return answer
