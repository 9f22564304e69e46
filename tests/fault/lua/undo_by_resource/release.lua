#!lua flags=allow-oom
-- A planted bug (tests/fault/test_planted.py): as lua/release.lua, but it takes out whoever holds the
-- resource instead of exactly those named.
local known = redis.call('GET', KEYS[1])
if known and known ~= ARGV[1] then
  return {'WRONG_STORE'}
end
return {'OK', string.format('%.0f', redis.call('DEL', KEYS[2]))}
