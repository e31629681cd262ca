-- Looks at a bucket without changing it.
--
-- returns {level, outstanding, active_instances, levels...}  (whole tokens, and those of each band in thousandths)

local lowest, reply = bands[1].level, {0, outstanding, active}
for i = 1, #bands do
    lowest, reply[3 + i] = min(lowest, bands[i].level), floor(bands[i].level * 1000)
end
reply[1] = floor(lowest)
return reply
