-- Credits tokens that one instance returns: unspent ones of its lease, and spent ones that a caller refunded.
--
-- ARGV[3] numbers on one line:
--   seq           (a repetition or a late duplicate credits nothing)
--   tokens, held  (tokens of the lease: returned unspent, kept by the instance; the rest is spent)
--   refund        (tokens, spent and reported before)
-- returns {credited}  (tokens; those above the burst are lost)

local REMEMBERED = 30000000 -- how long a refund is remembered, in case a client repeats it after a lost answer (us)

local seq, tokens, held, refund = match(ARGV[3], '^(%S+) (%S+) (%S+) (%S+)$')
seq, tokens, held, refund = seq + 0, tokens + 0, held + 0, refund + 0

if not found then return {0} end -- a missing bucket was full, or begins again with another epoch
local credited = 0
if not instance or seq > instance.seq then
    if refund > 0 and not instance then
        instance = {name = name, seq = -1, held = 0, expires = 0, last = now, seen = now, granted = 0, starts = 0,
                    weight = 0, known = 0}
    end
    credited = refund
    if instance then
        local still = min(held, instance.held)
        credited = credited + min(tokens, returnable(still))
        used = used - credited
        outstanding = outstanding - (instance.held - still)
        instance.seq, instance.held, instance.granted = seq, still, 0
        if refund > 0 then
            instance.known, known = now + REMEMBERED, now + REMEMBERED
        elseif still == 0 then
            -- An instance that returns all it has stops asking: its share goes to the others at once.
            if instance.weight > 0 then
                active, weights, lasts = active - 1, weights - instance.weight, lasts - instance.weight * instance.last
            end
            instance.weight, instance.struck = 0, instance.known <= now
        end
    end
    -- As far as there is room. There is none after a burst was lowered.
    local back = credited
    for i = 1, #bands do
        local band = bands[i]
        local free = room(band)
        credited = min(credited, floor(free))
        band.level = band.level + min(back, free)
    end
end
local reply = {credited}
