-- spread.lua - fenced writes, each to a resource drawn from all of a filled store (fill.py). Every
-- resource has the token 1.
--
-- BENCH_COUNT    how many resources there are
-- BENCH_BYTES    size of the value, a JSON text

dofile(os.getenv("BENCH_WRK") .. "/report.lua")

local count = tonumber(os.getenv("BENCH_COUNT"))
local bytes = tonumber(os.getenv("BENCH_BYTES"))
local head = "PUT /store/bench:"
local tail = "/value HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
  .. "X-Fencing-Token: 1\r\nContent-Length: " .. bytes .. "\r\n\r\n"
  .. '{"amount":100,"note":"' .. string.rep("x", bytes - 24) .. '"}'

function init()
  math.randomseed(os.time())
end

function request()
  return head .. math.random(1000000, 999999 + count) .. tail
end
