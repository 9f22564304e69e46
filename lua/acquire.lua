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
--
-- A grant is six commands, and most of its time is in them: nothing is asked twice, and what is not
-- ours (a key of another type, a member of another form) is noticed in the answers.

local max_token = 9007199254740991

local function decimal(number)
  return string.format('%d', number)
end

-- MGET answers nil for a key of another type as for none. A counter of another type is lost, as after
-- a FLUSHALL; for the store's UUID GET makes it an error.
local strings = redis.call('MGET', KEYS[1], KEYS[2])
local known = strings[1] or redis.call('GET', KEYS[1])
if not known then
  redis.call('SET', KEYS[1], ARGV[1])
elseif known ~= ARGV[1] then
  return {'WRONG_STORE'}
end

-- Time is read once: within one run everything is judged at the same instant.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local found = redis.pcall('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')
if found.err then
  redis.call('DEL', KEYS[3])
  found = {}
end

-- What is in the set and was not written here (another member form, an expiry beyond 2^53) would block
-- the resource for ever and belongs to nobody: it goes.
local function is_ours(member, score)
  local digits, secret = string.match(member, '^([1-9]%d*):([0-9a-f]+)$')
  return digits and #secret == 32 and #digits <= 16 and tonumber(digits) <= max_token
    and score < max_token + 1
end

local holders, dropped, last = {}, {}, 0
for i = 1, #found, 2 do
  local member, score = found[i], tonumber(found[i + 1])
  if not is_ours(member, score) then
    redis.call('ZREM', KEYS[3], member)
  elseif score <= now then
    dropped[#dropped + 1] = member
    dropped[#dropped + 1] = found[i + 1]
  else
    holders[#holders + 1] = member
    holders[#holders + 1] = found[i + 1]
    last = score -- they come by rising score
  end
end
if #dropped > 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', decimal(now))
end
if #holders / 2 >= tonumber(ARGV[3]) then
  return {'BUSY', '0', decimal(now), holders, dropped}
end

-- The counter may be gone (expired, lost) or garbage: the store's mark carries on.
local raw = strings[2]
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
local token_text, expiry_text = decimal(token), decimal(expiry)
local member = token_text .. ':' .. ARGV[5]
redis.call('ZADD', KEYS[3], expiry_text, member)
holders[#holders + 1] = member
holders[#holders + 1] = expiry_text

-- Both keys outlive the last holder: the counter so that tokens rise without asking the store,
-- the holders so that the next grant learns when each of them ran out.
local forget = decimal(math.max(last, expiry) + tonumber(ARGV[6]))
redis.call('SET', KEYS[2], token_text, 'PXAT', forget)
redis.call('PEXPIREAT', KEYS[3], forget)

return {'GRANTED', token_text, decimal(now), holders, dropped}
