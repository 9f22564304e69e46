-- etcd_lock.lua - etcd's lock of a new name each time: a lease, and the lock that lives with it. Two
-- requests make one lock.
--
-- BENCH_PREFIX   what the names begin with

dofile(os.getenv("BENCH_WRK") .. "/report.lua")

local leases, count = {}, 0
local number = 100000000
local grant = wrk.format("POST", "/v3/lease/grant", { Host = "bench" }, '{"TTL":30}')
local digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

-- Base64 of a text whose length is a multiple of three: parts can be put one behind the other.
local function base64(text)
  local out = {}
  for i = 1, #text, 3 do
    local a, b, c = text:byte(i, i + 2)
    local all = a * 65536 + b * 256 + c
    for shift = 3, 0, -1 do
      local at = math.floor(all / 64 ^ shift) % 64 + 1
      out[#out + 1] = digits:sub(at, at)
    end
  end
  return table.concat(out)
end

local prefix = os.getenv("BENCH_PREFIX")
prefix = base64(prefix .. string.rep("-", -#prefix % 3))

function request()
  if count == 0 then
    return grant
  end
  local lease = leases[count]
  count = count - 1
  number = number + 1
  local body = '{"name":"' .. prefix .. base64(tostring(number)) .. '","lease":"' .. lease .. '"}'
  return "POST /v3/lock/lock HTTP/1.1\r\nHost: bench\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body
end

function response(_, _, body)
  local lease = body:match('"ID":"(%d+)"')
  if lease then
    count = count + 1
    leases[count] = lease
  end
end
