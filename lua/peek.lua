-- Looks at a bucket without changing it.
--
-- returns {level, outstanding, active_hosts}  (whole tokens)

local level = levels[1]
for i = 2, #levels do level = min(level, levels[i]) end
return {floor(level), outstanding, active}
