-- write.lua - fenced writes: PUT of one record of each leased resource in turn.
--
-- BENCH_LEASES   a file with lines "resource token"
-- BENCH_BYTES    size of the value, a JSON text
-- BENCH_FIRST    start at this line (0)

dofile(os.getenv("BENCH_WRK") .. "/report.lua")

local bytes = tonumber(os.getenv("BENCH_BYTES"))
local body = '{"amount":100,"note":"' .. string.rep("x", bytes - 24) .. '"}'
local requests = {}
local at = 0

function init()
  for line in io.lines(os.getenv("BENCH_LEASES")) do
    local resource, token = line:match("^(%S+) (%d+)$")
    requests[#requests + 1] = wrk.format("PUT", "/store/" .. resource .. "/value", {
      Host = "bench",
      ["Content-Type"] = "application/json",
      ["X-Fencing-Token"] = token,
    }, body)
  end
end

function request()
  at = at % #requests + 1
  return requests[at]
end
