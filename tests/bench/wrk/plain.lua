-- plain.lua - the same GET again and again.

dofile(os.getenv("BENCH_WRK") .. "/report.lua")
