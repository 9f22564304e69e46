#!/usr/bin/env bash
# leaky_counter.sh - the two semaphores that come to mind first with a bare Redis. A counter (INCR,
# DECR) loses a permit for ever with each holder that dies. A set of holders (ZCARD, then ZADD)
# lets in everybody who looked while there was room. Beside them the same crash and the same crowd
# at the gateway.
#
# The redis-server of parts 1 and 2 is a private one. TTL=1 (seconds, of those who die), STEP=1,
# FENCE_URL.

# shellcheck source-path=SCRIPTDIR source=lib/scenario.sh
source "${BASH_SOURCE[0]%/*}/lib/scenario.sh"

LIMIT=3
TTL=${TTL:-1}
check_ttl 0.05
long_ttl
need redis-server redis-cli

begin "fencegate: three permits, and how a bare Redis loses count of them."
long_wait
start_gateway_and_redis
export REDIS_SOCKET

part 1 "INCR and DECR: two holders die"

worker A incr="$LIMIT" until=never
worker B after=A:incr incr="$LIMIT" until=never
outcome A incr "INCR permits" 1
outcome B incr "INCR permits" 2
slay A "SIGKILL: no DECR"
slay B "SIGKILL: no DECR"
worker C incr="$LIMIT" after=D:decr decr
outcome C incr "INCR permits" 3
worker D incr="$LIMIT"
outcome D incr "INCR permits: one too many" 4
outcome D decr "DECR permits, stays out" 3
outcome C decr "DECR permits, leaves" 2
step "redis-cli -s $REDIS_SOCKET GET permits"
leaked=$(redis GET permits)
must "no time ends it" test "$(redis TTL permits)" = -1
verdict "$RED" "in use, with nobody inside" "$leaked" 2 "LOST FOR EVER"

part 2 "ZCARD, then ZADD: three look at the same time"

redis DEL permits >/dev/null
worker A zcard="$LIMIT" zadd
worker B after=A:zadd zcard="$LIMIT" zadd
outcome A zadd "ZADD permits: is in" 1
outcome B zadd "ZADD permits: is in" 1
for name in C D E; do
    worker "$name" zcard="$LIMIT" until=looked zadd
done
for name in C D E; do
    outcome "$name" zcard "ZCARD permits: one is left" 2
done
say looked
for name in C D E; do
    outcome "$name" zadd "ZADD permits: is in" 1
done
step "redis-cli -s $REDIS_SOCKET ZCARD permits"
verdict "$RED" "inside, of $LIMIT" "$(redis ZCARD permits)" $((LIMIT + 2)) "TWO TOO MANY"

part 3 "The gateway: two holders die"

name_resource "permits:1"
for name in A B; do
    worker "$name" limit="$LIMIT" acquire="$TTL" until=never
    outcome "$name" acquire "acquire $RESOURCE, ttl ${TTL}s" 201
    fact sent_us && sent_us=$FACT
    slay "$name" "SIGKILL: no release"
done
worker C limit="$LIMIT" acquire="$LONG_TTL"
outcome C acquire "acquire $RESOURCE, limit $LIMIT" 201
for name in D E; do
    worker "$name" limit="$LIMIT" wait="$LONG_WAIT" acquire="$LONG_TTL"
done
for name in D E; do
    outcome "$name" acquire "acquire, waits for a permit" 201
    last_us=$((EVENT_US > ${last_us:-0} ? EVENT_US : last_us))
done
note "both are back $(seconds $((last_us - sent_us)))s after the last was taken"
count_holders
must "C, D and E are inside" test "$COUNT" = "$LIMIT"
worker F limit="$LIMIT" acquire="$LONG_TTL"
outcome F acquire "acquire $RESOURCE, limit $LIMIT" "409 lease_held"
verdict "$GREEN" "inside, of $LIMIT" "$COUNT" "$LIMIT" "ALL BACK"

part 4 "The gateway: ten ask at the same time"

name_resource "permits:2"
for ((number = 1; number <= 10; number++)); do
    STEP='' worker "W$number" limit="$LIMIT" until=go acquire="$LONG_TTL"
done
say go
for ((number = 1; number <= 10; number++)); do
    await "W$number" acquire
done
count_all acquire 201
let_in=$COUNT
find_first acquire W
line W "$let_in are let in" 201
count_all acquire 409
line W "$COUNT are told that it is full" 409 lease_held
must "each of the ten is one or the other" test $((let_in + COUNT)) = 10
count_holders
must "as many hold a permit as were let in" test "$COUNT" = "$let_in"
verdict "$GREEN" "inside, of $LIMIT" "$let_in" "$LIMIT" "NEVER MORE"
