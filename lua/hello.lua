#!lua flags=allow-oom
-- hello.lua - is this Redis database ours?
--
-- Run once per connection, before anything else.
-- KEYS   1 fencegate:store   the UUID of the store that uses this database
-- ARGV   1 our store's UUID
--        2 "1": take the database over from another store (--adopt-redis)
-- Answer {"OK"} or {"WRONG_STORE"}
--
-- allow-oom: a full Redis must still be known for ours, so that holders can leave it.
-- Effects: writes the UUID where there is none, or where the database is taken over.

local known = redis.call('GET', KEYS[1])
if known and known ~= ARGV[1] and ARGV[2] ~= '1' then
  return {'WRONG_STORE'}
end
if known ~= ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[1])
end
return {'OK'}
