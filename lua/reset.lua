-- Fills a bucket up to what is leased of it. What instances hold stays theirs, and counts against the burst. A pause
-- goes on.
--
-- ARGV[3] forget (1: as well its pause, for whom tokens are reserved, and which quota it obeys: the next asker's holds)
-- returns {} if there is no bucket: it is full; else the tokens that each bandwidth had (in thousandths)

if not found then return {} end
local forget = ARGV[3] == '1'
if forget then paused, gate = nil, nil end

local reply = {}
for i = 1, #bands do
    local band = bands[i]
    reply[i] = floor(band.level * 1000)
    if band ~= gate then band.level = max(band.level, band.burst - outstanding) end
end
if forget then
    reserved, since = nil, -2 ^ 49 -- younger is every quota that is asked with
    if rank then call('HDEL', key, 'rank', 'heard') end
    rank = nil
end
