#!lua flags=allow-oom
-- release.lua - take holders out, exactly those named.
--
-- KEYS   1 fencegate:store  2 fencegate:{resource}:holders
-- ARGV   1 our store's UUID
--        2 ... members "token:secret"
-- Answer {"OK", number of holders removed}
--        {"WRONG_STORE"}
--
-- Also the undo of a grant and the removal of an orphan. allow-oom: holders can always leave.

local known = redis.call('GET', KEYS[1])
if known and known ~= ARGV[1] then
  return {'WRONG_STORE'}
end
if redis.call('TYPE', KEYS[2]).ok ~= 'zset' then
  return {'OK', '0'}
end
local removed = redis.call('ZREM', KEYS[2], unpack(ARGV, 2))
return {'OK', string.format('%.0f', removed)}
