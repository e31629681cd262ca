-- A look at all hosts: adds those to `entries` from whom something is to be taken.
--
-- Once per lease time at most, and the rarer the more hosts there are, so that a call costs O(1) on average.

local SWEEP = 500 -- the spacing of two looks at all hosts, for each of them (us)

if now - swept >= lease and now - swept >= SWEEP * active then
    swept = now
    local fields = redis.call('HGETALL', key)
    for i = 1, #fields, 2 do
        if string.byte(fields[i]) == 104 and fields[i] ~= name then -- 104: h
            local expires, held, seen = unpack('<i7i7i7', fields[i + 1])
            if expires <= now and (held > 0 or seen + ACTIVE <= now) then
                entries[#entries + 1] = fields[i]
                entries[#entries + 1] = fields[i + 1]
            end
        end
    end
end
