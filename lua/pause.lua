-- Pauses a bucket, or lifts its pause. Of two pauses the one that ends later counts.
--
-- ARGV[3] lasting (us; 0: lift it)
-- ARGV[4] why     (text, for people)
-- returns {left}  (us until the pause ends; 0: there is none any more, and -1: there was none)

local lasting = min(ARGV[3] + 0, LONGEST * 1000)

if lasting == 0 then
    if not gate then return {-1} end
    -- Without the pause at most what is outstanding might be owed: so much is owed now, and no token is created.
    gate.level = max(gate.level, min(0, -outstanding))
    paused = nil
else
    if not found then since = -2 ^ 49 end -- younger is every quota that is asked with
    if not gate or now + lasting > paused then
        paused, gate = now + lasting, quickest(bands)
        gate.level = min(gate.level, -lasting * gate.rate)
        call('HSET', key, 'paused', format('%d ', paused) .. ARGV[4])
    end
end
local reply = {paused and paused - now or 0}
