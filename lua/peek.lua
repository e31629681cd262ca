-- Looks at a bucket without changing it.
--
-- returns {level, outstanding, active_hosts}  (whole tokens)

local bucket = read_bucket() or new_bucket(ARGV[1], 1)
refill_to_now(bucket, {})
return {lowest(bucket), bucket.outstanding, bucket.active}
