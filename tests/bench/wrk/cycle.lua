-- cycle.lua - acquire and release: a lease is released as soon as some connection is free to.
-- Requests are the sum of both; half of them is the number of cycles.
--
-- BENCH_PREFIX   what the names begin with

dofile(os.getenv("BENCH_WRK") .. "/report.lua")

local prefix = os.getenv("BENCH_PREFIX")
local number = 100000000
local held, count = {}, 0
local head = '{"resource":"' .. prefix
local tail = '","ttl_ms":30000}'
head = "POST /leases HTTP/1.1\r\nHost: bench\r\nContent-Length: " .. (#head + 9 + #tail)
  .. "\r\n\r\n" .. head

function request()
  if count > 0 then
    local lease = held[count]
    count = count - 1
    return "DELETE /leases/" .. lease .. " HTTP/1.1\r\nHost: bench\r\n\r\n"
  end
  number = number + 1
  return head .. number .. tail
end

function response(status, _, body)
  if status == 201 then
    count = count + 1
    held[count] = body:match('"lease_id":"([^"]+)"')
  end
end
