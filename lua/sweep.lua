-- Looks at all instances and adds those to `entries` whose lease or share is over.
--
-- At most once in the time of a lease, and more rarely with more instances, so that a call costs O(1) on average.

local SWEEP = 500 -- the spacing of two looks at all instances, for each of them (us)

if now - swept >= lease and now - swept >= SWEEP * active then
    swept = now
    local fields = call('HGETALL', key)
    for i = 1, #fields, 2 do
        if string.sub(fields[i], 1, 9) == 'instance:' and fields[i] ~= name then
            local held, seen, lasting = match(fields[i + 1], '^(%d+) (%d+) (%d+)')
            if seen + lasting <= now and (held ~= '0' or seen + ACTIVE <= now) then
                entries[#entries + 1] = fields[i]
                entries[#entries + 1] = fields[i + 1]
            end
        end
    end
end
