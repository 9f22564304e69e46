#!lua
-- A planted bug (tests/fault/test_planted.py): as lua/renew.lua, but ZADD XX is asked to move the
-- expiry, and its answer is taken for "was there". It is 0 both for "not there" and for "moved", and
-- in Lua 0 is true.
local known = redis.call('GET', KEYS[1])
if known and known ~= ARGV[1] then
  return {'WRONG_STORE'}
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local expiry = string.format('%.0f', now + tonumber(ARGV[4]))
if redis.call('ZADD', KEYS[3], 'XX', expiry, ARGV[2]) then
  return {'RENEWED', expiry, string.format('%.0f', now)}
end
return {'EXPIRED'}
