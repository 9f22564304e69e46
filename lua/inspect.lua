#!lua flags=no-writes,allow-oom
-- inspect.lua - who holds a resource, and for how long.
--
-- KEYS   1 fencegate:store  2 fencegate:{resource}:holders
-- ARGV   1 our store's UUID
-- Answer {"OK", "0", now, holders}    as acquire.lua; those whose time has passed are among them
--        {"WRONG_STORE"}

local known = redis.call('GET', KEYS[1])
if known and known ~= ARGV[1] then
  return {'WRONG_STORE'}
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local holders = {}
if redis.call('TYPE', KEYS[2]).ok == 'zset' then
  holders = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
end
return {'OK', '0', string.format('%.0f', now), holders}
