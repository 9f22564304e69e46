#!lua
-- acquire.lua - grant a lease of a resource if fewer than `limit` are held.
--
-- KEYS   1 fencegate:store               the UUID of the store that uses this database
--        2 fencegate:{resource}:counter  the last fencing token
--        3 fencegate:{resource}:holders  sorted set: "token:secret", score = expiry in ms
-- ARGV   1 our store's UUID
--        2 mark     the store's high-water mark: the token becomes greater than it
--        3 limit    how many leases may be held at once
--        4 ttl      ms
--        5 secret   32 hex digits, fresh for this attempt
--        6 memory   ms that counter and holders outlive the last expiry
-- Answer {"GRANTED", token, now, holders, dropped}
--        {"BUSY", "0", now, holders, dropped}
--        {"EXHAUSTED"}      no token is left below 2^53
--        {"WRONG_STORE"}
--        now, expiries: ms by this Redis' clock, as strings
--        holders: all that hold it now, this grant included, as {member, expiry, member, expiry ...}
--        dropped: those whose time had passed, likewise
--
-- Effects: drops the expired holders; on a grant raises the counter and adds the holder. No flags
-- after the first line: Redis refuses the script where it is out of memory, before it does anything.

local max_token = 9007199254740991

local known = redis.call('GET', KEYS[1])
if not known then
  redis.call('SET', KEYS[1], ARGV[1])
elseif known ~= ARGV[1] then
  return {'WRONG_STORE'}
end

local function decimal(number)
  return string.format('%.0f', number)
end

-- Time is read once: within one run everything is judged at the same instant.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

-- A key of another type is not ours: what it was is lost, as after a FLUSHALL.
local function own(key, kind)
  local found = redis.call('TYPE', key).ok
  if found ~= kind and found ~= 'none' then
    redis.call('DEL', key)
  end
end
own(KEYS[2], 'string')
own(KEYS[3], 'zset')

-- What is in the set and was not written here (another member form, an expiry beyond 2^53) would block
-- the resource for ever and belongs to nobody: it goes.
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

local dropped = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', decimal(now), 'WITHSCORES')
if #dropped > 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', decimal(now))
end

local holders = redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')
if #holders / 2 >= tonumber(ARGV[3]) then
  return {'BUSY', '0', decimal(now), holders, dropped}
end

-- The counter may be gone (expired, lost) or garbage: the store's mark carries on.
local raw = redis.call('GET', KEYS[2])
local counter = 0
if raw and string.match(raw, '^%d+$') and #raw <= 16 then
  counter = tonumber(raw)
end
if counter > max_token then
  counter = 0
end
local token = math.max(counter, tonumber(ARGV[2])) + 1
if token > max_token then
  return {'EXHAUSTED'}
end

local expiry = now + tonumber(ARGV[4])
local member = decimal(token) .. ':' .. ARGV[5]
redis.call('ZADD', KEYS[3], decimal(expiry), member)
holders[#holders + 1] = member
holders[#holders + 1] = decimal(expiry)

-- Both keys outlive the last holder: the counter so that tokens rise without asking the store,
-- the holders so that the next grant learns when each of them ran out.
local last = tonumber(redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2])
local forget = decimal(last + tonumber(ARGV[6]))
redis.call('SET', KEYS[2], decimal(token), 'PXAT', forget)
redis.call('PEXPIREAT', KEYS[3], forget)

return {'GRANTED', decimal(token), decimal(now), holders, dropped}
