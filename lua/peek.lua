-- Looks at a bucket without changing it.
--
-- returns {level, outstanding, active_instances}  (whole tokens)

return {floor(min(unpack(levels))), outstanding, active}
