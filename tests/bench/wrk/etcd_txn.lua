-- etcd_txn.lua - etcd's guarded write: put the value if the lock's key is still the one that was created.
--
-- BENCH_GUARDS   a file with lines "lock-key value-key create-revision", keys in base64
-- BENCH_VALUE    in base64

dofile(os.getenv("BENCH_WRK") .. "/report.lua")

local requests = {}
local at = 0

function init()
  for line in io.lines(os.getenv("BENCH_GUARDS")) do
    local lock, key, revision = line:match("^(%S+) (%S+) (%d+)$")
    local body = string.format(
      '{"compare":[{"key":"%s","target":"CREATE","result":"EQUAL","create_revision":"%s"}],'
        .. '"success":[{"requestPut":{"key":"%s","value":"%s"}}]}',
      lock, revision, key, os.getenv("BENCH_VALUE"))
    requests[#requests + 1] = wrk.format("POST", "/v3/kv/txn", { Host = "bench" }, body)
  end
end

function request()
  at = at % #requests + 1
  return requests[at]
end
