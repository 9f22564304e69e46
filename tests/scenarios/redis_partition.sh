#!/usr/bin/env bash
# redis_partition.sh - Redis does not answer for a while, as if the network between it and the
# gateway were cut. Nobody can acquire or renew, but the holder's writes go on: the store decides
# about them, and it does not ask Redis.
#
# TTL=30 PAUSE=1 (seconds: A's lease, and how long Redis is silent, at least), STEP=1. With
# FENCE_URL it does nothing: it stops only a Redis that it has started itself.

# shellcheck source-path=SCRIPTDIR source=lib/scenario.sh
source "${BASH_SOURCE[0]%/*}/lib/scenario.sh"

long_ttl
TTL=${TTL:-$LONG_TTL} PAUSE=${PAUSE:-1}
check_ttl 0.05
check_seconds PAUSE
if (($(seconds_to_ms "$TTL") < $(seconds_to_ms "$PAUSE") + 10000)); then
    usage "TTL=$TTL must be at least PAUSE=$PAUSE and 10 s: A's lease shall outlive the silence"
fi
need redis-server redis-cli

begin "fencegate: Redis is silent, the holder writes on."
if [[ -n ${FENCE_URL:-} ]]; then
    skip "FENCE_URL is set, and this script stops only a Redis that it has started itself."
fi
start_gateway_and_redis

part 1 "SIGSTOP to redis-server while A holds the lease"

worker A acquire="$TTL" renew after=R:SIGSTOP renew after=B:acquire put put \
    after=R:SIGCONT renew_retrying after=C:acquire release
outcome A acquire "acquire $RESOURCE, ttl ${TTL}s" 201
first=$TOKEN
outcome A renew "renew" 200

PID[R]=$REDIS_PID
freeze R "SIGSTOP: Redis is silent"
stopped_us=$EVENT_US
outcome A renew "renew" "503 redis_unavailable"
worker B acquire="$TTL"
outcome B acquire "acquire $RESOURCE" "503 redis_unavailable"
outcome A put "PUT charge, X-Fencing-Token: {token}" 201
outcome A put "PUT charge, X-Fencing-Token: {token}" 200

EVENT_US=$stopped_us
wait_since_event "$PAUSE"
thaw R "SIGCONT: Redis answers again"
outcome A renew "renew, until it succeeds" 200
worker C acquire="$TTL"
outcome C acquire "acquire $RESOURCE" "409 lease_held"
fact holder
must "C is told that A holds it" test "$FACT" = "$first"
outcome A release "release" 200

count_accepted
verdict "$GREEN" writes "$COUNT" 2 "THE HOLDER WROTE ON"

draw_lanes 40 A R B C
