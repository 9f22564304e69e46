-- report.lua - what every load of this folder says at its end: one line "bench name=value ..." that
-- lab.py reads. Times are microseconds.

done = function(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    "bench requests=%d duration_us=%d p50_us=%d p90_us=%d p99_us=%d max_us=%d"
      .. " non_2xx=%d connect=%d read=%d write=%d timeout=%d\n",
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(90),
    latency:percentile(99), latency.max, errors.status, errors.connect, errors.read, errors.write,
    errors.timeout))
end
