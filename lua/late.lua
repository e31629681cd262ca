-- Leaves the bucket alone if nobody waits for the answer any more: the server stood still, or the network did.
--
-- ARGV[5] latest (us since the epoch; missing: never)  from then on the reply is {now (us since the epoch)}

if ARGV[5] and clock >= ARGV[5] + 0 then return {clock} end
