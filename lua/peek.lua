-- Looks at a bucket without changing it.
--
-- returns {level, outstanding, active_instances}  (whole tokens)

local lowest = bands[1].level
for i = 2, #bands do lowest = min(lowest, bands[i].level) end
return {floor(lowest), outstanding, active}
