#!lua
-- renew.lua - move the expiry of one holder.
--
-- KEYS   1 fencegate:store  2 fencegate:{resource}:counter  3 fencegate:{resource}:holders
-- ARGV   1 our store's UUID
--        2 member   "token:secret"
--        3 token
--        4 ttl      ms from now; may shorten
--        5 limit    how many leases may be held at once
--        6 oldest   "0": its time has passed by the gateway's own clock. Else the token of the oldest
--                   lease that the store still accepts writes from
--        7 memory   ms that counter and holders outlive the last expiry
-- Answer {"RENEWED", expiry, now}    ms by this Redis' clock, as strings
--        {"RESTORED", expiry, now}   Redis had lost its data: holder and counter were put back
--        {"EXPIRED"}                 not a holder, or its time has passed
--        {"WRONG_STORE"}
--
-- A holder that is gone is never created again, with one exception: the counter is below its token,
-- so Redis has lost its data, and there is room. The counter is then put back as far as to just below
-- the oldest lease that may have been lost with it, so that a semaphore's holders come back in any
-- order; tokens go on rising from the store's mark, which every acquire brings along. Its presence is looked up with ZSCORE before
-- the score moves: ZADD XX answers 0 both for "not there" and for "same score", and 0 is true here.

local max_token = 9007199254740991

local function decimal(number)
  return string.format('%d', number)
end

-- As in acquire.lua: a key of another type is lost, except the store's UUID.
local strings = redis.call('MGET', KEYS[1], KEYS[2])
local known = strings[1] or redis.call('GET', KEYS[1])
if not known then
  redis.call('SET', KEYS[1], ARGV[1])
elseif known ~= ARGV[1] then
  return {'WRONG_STORE'}
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local token = tonumber(ARGV[3])

local raw = strings[2]
local known_counter = raw and string.match(raw, '^%d+$') and #raw <= 16 and tonumber(raw) <= max_token
local counter = known_counter and tonumber(raw) or 0

local score = redis.pcall('ZSCORE', KEYS[3], ARGV[2])
if type(score) == 'table' then
  redis.call('DEL', KEYS[3])
  score = false
end

-- As in acquire.lua: what was not written here goes, before it is counted.
local function held()
  local all = redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')
  local count = 0
  for i = 1, #all, 2 do
    local digits, secret = string.match(all[i], '^([1-9]%d*):([0-9a-f]+)$')
    local expires = tonumber(all[i + 1])
    if not digits or #secret ~= 32 or #digits > 16 or tonumber(digits) > max_token
        or not (expires < max_token + 1) then
      redis.call('ZREM', KEYS[3], all[i])
    elseif expires > now then
      count = count + 1
    end
  end
  return count
end

local outcome = 'RENEWED'
if score then
  if tonumber(score) <= now then
    return {'EXPIRED'}
  end
  counter = known_counter and counter or token
elseif counter < token and ARGV[6] ~= '0' and held() < tonumber(ARGV[5]) then
  outcome = 'RESTORED'
  local oldest = tonumber(ARGV[6])
  counter = math.max(counter, oldest < token and oldest - 1 or token)
else
  return {'EXPIRED'}
end

local expiry = now + tonumber(ARGV[4])
redis.call('ZADD', KEYS[3], decimal(expiry), ARGV[2])
local function last_expiry()
  return tonumber(redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2])
end
local last = last_expiry()
if not (last <= max_token) then
  held() -- sweeps
  last = last_expiry()
end
local forget = decimal(last + tonumber(ARGV[7]))
redis.call('SET', KEYS[2], decimal(counter), 'PXAT', forget)
redis.call('PEXPIREAT', KEYS[3], forget)
return {outcome, decimal(expiry), decimal(now)}
