#!lua
-- renew.lua - move the expiry of one holder.
--
-- KEYS   1 fencegate:store  2 fencegate:{resource}:counter  3 fencegate:{resource}:holders
-- ARGV   1 our store's UUID
--        2 member   "token:secret"
--        3 token
--        4 ttl      ms from now; may shorten
--        5 limit    how many leases may be held at once
--        6 restore  "1": its time has not passed by the gateway's own clock
--        7 memory   ms that counter and holders outlive the last expiry
-- Answer {"RENEWED", expiry, now}    ms by this Redis' clock, as strings
--        {"RESTORED", expiry, now}   Redis had lost its data: holder and counter were put back
--        {"EXPIRED"}                 not a holder, or its time has passed
--        {"WRONG_STORE"}
--
-- A holder that is gone is never created again, with one exception: the counter is below its token,
-- so Redis has lost its data, and there is room. Its presence is looked up with ZSCORE before
-- the score moves: ZADD XX answers 0 both for "not there" and for "same score", and 0 is true here.

local known = redis.call('GET', KEYS[1])
if not known then
  redis.call('SET', KEYS[1], ARGV[1])
elseif known ~= ARGV[1] then
  return {'WRONG_STORE'}
end

local function decimal(number)
  return string.format('%.0f', number)
end

local function own(key, kind)
  local found = redis.call('TYPE', key).ok
  if found ~= kind and found ~= 'none' then
    redis.call('DEL', key)
  end
end
own(KEYS[2], 'string')
own(KEYS[3], 'zset')

-- As in acquire.lua: what was not written here goes.
local function sweep(key)
  local all = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    local digits, secret = string.match(all[i], '^([1-9]%d*):([0-9a-f]+)$')
    if not digits or #secret ~= 32 or #digits > 16 or tonumber(digits) > 9007199254740991
        or not (tonumber(all[i + 1]) < 9007199254740992) then
      redis.call('ZREM', key, all[i])
    end
  end
end
sweep(KEYS[3])

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local token = tonumber(ARGV[3])

local raw = redis.call('GET', KEYS[2])
local counter = 0
if raw and string.match(raw, '^%d+$') and #raw <= 16 then
  counter = tonumber(raw)
end
if counter > 9007199254740991 then
  counter = 0
end

local outcome = 'RENEWED'
local score = redis.call('ZSCORE', KEYS[3], ARGV[2])
if score then
  if tonumber(score) <= now then
    return {'EXPIRED'}
  end
else
  local held = redis.call('ZCOUNT', KEYS[3], '(' .. decimal(now), '+inf')
  if counter >= token or ARGV[6] ~= '1' or held >= tonumber(ARGV[5]) then
    return {'EXPIRED'}
  end
  outcome = 'RESTORED'
end

local expiry = now + tonumber(ARGV[4])
redis.call('ZADD', KEYS[3], decimal(expiry), ARGV[2])
local last = tonumber(redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2])
local forget = decimal(last + tonumber(ARGV[7]))
redis.call('SET', KEYS[2], decimal(math.max(counter, token)), 'PXAT', forget)
redis.call('PEXPIREAT', KEYS[3], forget)
return {outcome, decimal(expiry), decimal(now)}
