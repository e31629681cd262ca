-- The beginning of the scripts of buckets: the server's time, and what a quota says.

local call, match, format = redis.call, string.match, string.format
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max

-- What the fields mean. A script refuses a bucket of another format and leaves it as it is. A change of what a field
-- means raises this number, and the one in batchlimit/bucket/state.py. It also gives `quota` and `q` other names: releases
-- from before there were formats, and spend, look for these fields, and leave a hash alone that lacks them.
local FORMAT = '1'

local LEASE = 1000000  -- the longest lease while the bucket is poor (us)
local SHORTEST = 20000 -- the shortest: a lease that ends before the answer arrives is useless (us)
local LONGEST = 315360000000 -- ten years (ms): longer times might overflow a clock or an integer

local SILENT = 60000000 -- a rank counts for so long after an instance that has it was heard (us)
local HEARD = SILENT / 8 -- the first ask of an instance in each such time tells that its rank is heard still (us)
local FAR = 2 ^ 49      -- a quota by rules of the store is so much younger than any other: scripts without ranks obey it

local clock = call('TIME')
clock = clock[1] * 1000000 + clock[2]

local MARGIN = 5000 -- how much longer than needed an untouched bucket is kept: longer than any lease (ms)
local SLACK = 1000  -- and how much longer than that at the most, so that few calls have to say it anew (ms)
