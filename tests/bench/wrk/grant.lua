-- grant.lua - grants: POST /leases with a new name each time, so that each is granted.
--
-- BENCH_PREFIX   what the names begin with

dofile(os.getenv("BENCH_WRK") .. "/report.lua")

local prefix = os.getenv("BENCH_PREFIX")
local number = 100000000 -- always nine digits: the length of the body does not change
local head = '{"resource":"' .. prefix
local tail = '","ttl_ms":30000}'
head = "POST /leases HTTP/1.1\r\nHost: bench\r\nContent-Length: " .. (#head + 9 + #tail)
  .. "\r\n\r\n" .. head

function request()
  number = number + 1
  return head .. number .. tail
end
