-- Tells those who line up at a key, one after the other, when their turn is. Nothing is charged.
--
-- State: a hash, beside the bucket. Its field `ends` is the next turn that nobody has (us of the server's clock).
--
-- KEYS[1] line     (the hash)
-- ARGV[1] wait     (us until the first turn, if nobody is in line)
-- ARGV[2] spacing  (us from this turn to the next)
-- ARGV[3] longest  (us; a later turn stays free)
-- returns {left}   (us until the turn)

local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local turn = math.max(call('HGET', KEYS[1], 'ends') or 0, now + ARGV[1])

if turn - now <= ARGV[3] + 0 then
    local ends = turn + ARGV[2]
    call('HSET', KEYS[1], 'ends', string.format('%d', ends))
    call('PEXPIRE', KEYS[1], math.ceil((ends - now) / 1000) + 1)
end
return {turn - now}
