-- Lends the slots of one limit to limiter instances. A slot is leave for one permit to be held.
--
-- Promise: never more than `limit` slots are lent at once. An instance stops using its slots before its lease is over
-- here, because it counts the lease from before it asked, and leaves out a tenth.
--
-- State: a limit is one hash. Its fields are text: a number, or several with a space between. Times are microseconds
-- (us) of the server's clock since 1970.
--   limit        slots; the lowest that an instance with a lease has named
--   format       of this hash, if it is not 1: see FORMAT
--   token        grows with each ask, and is at least the clock in units of 8 us: no server answers 125,000 asks a second,
--                so it goes on by the clock where the hash was lost
--   instance:ID  held (slots); until (us): when they are free again, unless the instance asks before; wants (slots) that
--                it waits for; since (us); weight; idle: slots that no permit held when it asked; limit, as it named it;
--                granted: slots that it got so far; told: 0, or 1 more than the slots that it was told to keep
--
-- An instance counts what it was granted and what it returned, and never counts back. So the slots that it holds are
-- granted - returned, whatever message was lost, doubled or overtaken on the way. A lost hash is filled again with what
-- instances claim to hold, as far as there is room. The reply says so to an instance that gets less.
--
-- KEYS[1] limit      (the hash)
-- ARGV[1] instance   (its ID, a dot, and a number that is new after each lease that it lost)
-- ARGV[2] numbers on one line:
--   limit      (slots)
--   lease      (us)
--   weight     (its part of the slots while instances compete)
--   returned   (slots that it gave back so far)
--   held       (slots that it knows to hold; the hash may have lost some of them)
--   target     (slots that it has use for now)
--   waiting    (of those that it does not get: for how many it waits)
--   extra      (slots that it has use for soon)
--   idle       (slots that it holds for no permit)
-- ARGV[3] channel    (instances listen at this, followed by their ID without the number)
-- returns {granted, token, keep, fresh, lent, limit, instances}
--   granted    (slots that the instance got so far)
--   keep       (slots that it may hold while others wait; -1: nobody else waits)
--   fresh      (1: the hash did not know of all its slots; `granted` may be lower than what it was before)
--   lent       (slots that all instances hold)
-- and publishes, to each other instance that got slots or is to give some back: ID, granted, token, keep, KEYS[1]

-- What the fields mean, as in bucket.lua. Format 1 is not written: releases from before there were formats know no such
-- field. They refuse a hash that has it.
local FORMAT = '1'

local TICK = 8 -- the unit of a token, as far as the clock tells it (us)
local KEPT = 60000 -- how long a limit that nobody uses is kept, so that its token never starts again (ms)
local LONGEST_WAIT = 3600000000 -- a longer wait counts no more (us): times a weight it is still an exact number

local key, name = KEYS[1], ARGV[1]
local call, match, format = redis.call, string.match, string.format
local floor, min, max = math.floor, math.min, math.max

local limit, lease, weight, returned, claimed, target, waiting, extra, idle = match(ARGV[2],
    '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local token, all, me = 0, {}, nil

local fields = call('HGETALL', key)
local written = #fields > 0 and (call('HGET', key, 'format') or '1') or FORMAT
if written ~= FORMAT then
    return redis.error_reply('FORMAT this limit is of format ' .. written .. ', and this release reads ' .. FORMAT)
end
for i = 1, #fields, 2 do
    local field, text = fields[i], fields[i + 1]
    if string.sub(field, 1, 9) == 'instance:' then
        local held, ends, wants, since, share, unused, named, granted, told = match(text,
            '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
        local one = {name = string.sub(field, 10), held = held + 0, ends = ends + 0, wants = wants + 0,
            since = since + 0, weight = share + 0, idle = unused + 0, limit = named + 0, granted = granted + 0,
            told = told + 0}
        if one.name == name then
            me = one
        elseif one.ends > now then
            all[#all + 1] = one
        else
            call('HDEL', key, field)
        end
    elseif field == 'token' then
        token = text + 0
    elseif field ~= 'limit' and field ~= 'format' then
        error('this hash is no limit')
    end
end

-- An instance whose lease is over here asks under a new number.
local fresh = not me or me.ends <= now
local n = limit + 0
local lent = 0
for i = 1, #all do
    n = min(n, all[i].limit)
    lent = lent + all[i].held
end
local was_there = me ~= nil
if fresh then me = {name = name, held = 0, wants = 0, since = now, granted = 0, told = 0} end
me.granted = max(me.granted, returned + 0)
local had = me.held
me.held = min(had, me.granted - returned)
-- It knows of more than the hash: a failover or a restart has lost what it was granted.
local lost = returned + claimed - me.granted
if lost > 0 then
    local still = max(0, min(lost, n - lent - me.held))
    me.held, me.granted, fresh = me.held + still, me.granted + still, true
end
all[#all + 1] = me
lent = lent + me.held
me.ends, me.weight, me.idle, me.limit = now + lease, weight + 0, idle + 0, limit + 0

local weights = 0
for i = 1, #all do weights = weights + all[i].weight end

-- Returns the whole slots of an instance, if all are divided by weight.
local function share(one)
    return floor(n * one.weight / weights)
end

-- An instance that gives a slot back has had one: others of as few are before it, unless there are fewer slots than
-- instances.
if me.wants == 0 or (me.held < had and share(me) > 0) then me.since = now end
me.wants = max(0, target - me.held)

-- Returns how long an instance has waited, times its weight: of fewer slots than instances it gets its part by that.
local function patience(one)
    return min(max(0, now - one.since), LONGEST_WAIT) * one.weight
end

-- Whether one instance comes before another: it holds less for its weight, or has waited longer, by its weight.
local function before(one, other)
    local left, right = one.held * other.weight, other.held * one.weight
    if left ~= right then return left < right end
    left, right = patience(one), patience(other)
    if left ~= right then return left > right end
    if one.weight ~= other.weight then return one.weight > other.weight end
    if one.since ~= other.since then return one.since < other.since end
    return one.name < other.name
end

-- Returns the first of those that want slots, except one.
local function first(except)
    local found = nil
    for i = 1, #all do
        local one = all[i]
        if one ~= except and one.wants > 0 and (not found or before(one, found)) then found = one end
    end
    return found
end

local function grant(one, slots)
    one.held, one.granted, lent = one.held + slots, one.granted + slots, lent + slots
    one.got = true
end

-- Those that want slots are a heap: nobody in it comes before who stands at half its place, so the first stands at 1.
local line = {}
local function sink(place)
    local next = 2 * place
    while next <= #line do
        if line[next + 1] and before(line[next + 1], line[next]) then next = next + 1 end
        if not before(line[next], line[place]) then return end
        line[place], line[next] = line[next], line[place]
        place, next = next, 2 * next
    end
end

-- The first one gets its part of what is free, and so on: one slot each where few are free.
if lent < n then
    for i = 1, #all do
        if all[i].wants > 0 then line[#line + 1] = all[i] end
    end
    for place = floor(#line / 2), 1, -1 do sink(place) end
end
while lent < n and line[1] do
    local one = line[1]
    local slots = max(1, min(one.wants, floor((n - lent) / #line)))
    one.wants, one.since = one.wants - slots, now
    grant(one, slots)
    if one.wants == 0 then
        line[1] = line[#line]
        line[#line] = nil
    end
    sink(1)
end
if extra + 0 > 0 then
    local slots = min(extra + 0, floor(max(0, n - lent) / (#all + 1)))
    if slots > 0 then grant(me, slots) end
end
me.wants = min(me.wants, waiting + 0)
token = max(token + 1, floor(now / TICK))

-- Returns the slots up to which nobody asks an instance to give some back, if `next` waits.
local function fair(one, next)
    return max(floor((next.held + 1) * one.weight / next.weight), share(one))
end

-- Whether an instance has more than its share, and has had it for a third of a lease, while `next` has less than its part.
local function is_over(one, next)
    return one.held > share(one) and next.held * weights < n * next.weight and 3 * (now - one.since) >= lease + 0
end

-- Whether somebody holds more than is fair if `next` waits.
local function surplus(next)
    for i = 1, #all do
        if all[i].held > fair(all[i], next) then return true end
    end
    return false
end

local one, two = first(nil), nil
if one then two = first(one) end
local more = {[1] = one and surplus(one), [2] = two and surplus(two)}

-- Returns how many slots an instance may hold while others wait; -1: nobody else waits.
--
-- Those give slots back that hold more than is fair. If there is none and the next one has nothing at all, there are
-- fewer slots than instances: then all give back what they release, and the slots go round. Slots that are left over
-- when all have their share go round too, once in a third of a lease.
local function keep(who)
    local next, others = one, more[1]
    if who == one then next, others = two, more[2] end
    if not next then return lent > n and share(who) or -1 end
    local mine = is_over(who, next) and share(who) or fair(who, next)
    if who.held > mine then return mine end
    return (next.held > 0 or others) and who.held or 0
end

local ends = now
for i = 1, #all do
    local one = all[i]
    local kept = keep(one)
    if one ~= me and (one.got or (kept >= 0 and (one.idle > 0 or one.held > kept)
        and (one.told == 0 or kept + 1 < one.told))) then
        one.told = kept + 1
        -- Without the right to publish, or without a listener, a waiter loses one pause: it looks by itself.
        redis.pcall('PUBLISH', ARGV[3] .. match(one.name, '^[^.]*'),
            format('%s %.0f %.0f %.0f %s', one.name, one.granted, token, kept, key))
        one.got = true
    elseif one == me then
        one.told, me.keep = kept + 1, kept
    end
    if one == me and one.held == 0 and one.wants == 0 then
        if was_there then call('HDEL', key, 'instance:' .. name) end
    elseif one == me or one.got then
        call('HSET', key, 'instance:' .. one.name, format('%.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f', one.held,
            one.ends, one.wants, one.since, one.weight, one.idle, one.limit, one.granted, one.told))
    end
    ends = max(ends, one.ends)
end
call('HSET', key, 'limit', format('%.0f', n), 'token', format('%.0f', token))
if FORMAT ~= '1' then call('HSET', key, 'format', FORMAT) end
call('PEXPIRE', key, format('%.0f', max(floor((ends - now) / 1000), floor(token * TICK / 1000) - floor(now / 1000)) + KEPT))
return {me.granted, token, me.keep, fresh and 1 or 0, lent, n, #all}
