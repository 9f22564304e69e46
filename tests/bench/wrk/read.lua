-- read.lua - reads: GET of one record of each resource in turn.
--
-- BENCH_LEASES   a file with lines "resource token"

dofile(os.getenv("BENCH_WRK") .. "/report.lua")

local requests = {}
local at = 0

function init()
  for line in io.lines(os.getenv("BENCH_LEASES")) do
    local path = "/store/" .. line:match("^(%S+)") .. "/value"
    requests[#requests + 1] = wrk.format("GET", path, { Host = "bench" })
  end
end

function request()
  at = at % #requests + 1
  return requests[at]
end
