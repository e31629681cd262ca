-- Takes back tokens from one host: unspent ones of its lease, and spent ones that a caller refunded.
--
-- ARGV[3] what it gives back, packed doubles:
--   seq           (a repetition or a late duplicate credits nothing)
--   tokens, held  (tokens of the lease: returned unspent, staying with the host; the rest is spent)
--   refund        (tokens, spent and reported before)
-- returns {credited}  (tokens; what finds no room below the burst is lost)

local REMEMBERED = 30000000 -- how long a refund is known, should a client send it again after a lost answer (us)

local seq, tokens, held, refund = unpack('<dddd', ARGV[3])

if not found then return {0} end -- a bucket that is gone was full, or begins anew with another epoch
local credited = 0
if not host or seq > host.seq then
    if refund > 0 and not host then
        host = {name = name, seq = -1, held = 0, expires = 0, last = now, seen = now, granted = 0, starts = 0,
                weight = 0, known = 0}
    end
    credited = refund
    if host then
        local still = min(held, host.held)
        credited = credited + min(tokens, host.held - still)
        outstanding = outstanding - (host.held - still)
        host.seq, host.held, host.granted = seq, still, 0
        if refund > 0 then
            host.known, known = now + REMEMBERED, now + REMEMBERED
        elseif still == 0 then
            -- A host that returns all it has stops asking: its share goes to the others at once.
            if host.weight > 0 then
                active, weights, lasts = active - 1, weights - host.weight, lasts - host.weight * host.last
            end
            host.weight, host.struck = 0, host.known <= now
        end
    end
    -- As far as there is room: none where a burst was just lowered.
    local back = credited
    for i = 1, #levels do
        local room = max(0, bursts[i] - outstanding - levels[i])
        credited = min(credited, floor(room))
        levels[i] = levels[i] + min(back, room)
    end
end
local reply = {credited}
