-- Takes back tokens from one host: unspent ones of its lease, and spent ones that a caller refunded.
--
-- ARGV[2] host, ARGV[3] seq    (a repetition or a late duplicate credits nothing)
-- ARGV[4] tokens, ARGV[5] held (tokens of the lease: returned unspent, staying with the host; the rest is spent)
-- ARGV[6] refund               (tokens, spent and reported before)
-- returns {credited}           (tokens; what finds no room below the burst is lost)

local name, seq, tokens, held, refund = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]),
                                        tonumber(ARGV[6])

local REMEMBERED = 30000000 -- how long a refund is known, should a client send it again after a lost answer (us)

-- A host that returns all it has stops asking: its share goes to the others at once.
local function settle(bucket, host)
    local kept = math.min(held, host.held)
    local unspent = math.min(tokens, host.held - kept)
    bucket.outstanding = bucket.outstanding - (host.held - kept)
    host.seq, host.held, host.granted = seq, kept, 0
    if refund > 0 then
        host.known = bucket.now + REMEMBERED
        bucket.known = host.known
    elseif kept == 0 then
        forget(bucket, host)
    end
    return unspent
end

local bucket = read_bucket()
if not bucket then return {0} end -- a bucket that is gone was full, or begins anew with another epoch
local host = read_host(bucket, name)
refill_to_now(bucket, {host})
host = host and keep(bucket, host)
if host and seq <= host.seq then
    write_bucket(bucket)
    return {0}
end
if refund > 0 then host = host or enter(bucket, name) end
if host then touch(bucket, host) end
local returned = refund
if host then returned = returned + settle(bucket, host) end
local credited = credit(bucket, returned)
write_bucket(bucket)
return {credited}
