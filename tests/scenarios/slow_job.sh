#!/usr/bin/env bash
# slow_job.sh - the incident: a lock of 30 s, a job that took 45 s because a query was slow (here
# 1 s and 1.5 s). The lock ran out in the middle, B took over, and then A came back: it renewed,
# charged, and released, and its release deleted B's lock, so that C came in, too. Here is what
# each of these steps does when a lease is known by its id and a write by its token.
#
# TTL=1 PAUSE=1.5 (seconds: A's lease, and how long the query keeps A; at least until B has the
# lease), STEP=1, FENCE_URL.

# shellcheck source-path=SCRIPTDIR source=lib/scenario.sh
source "${BASH_SOURCE[0]%/*}/lib/scenario.sh"

TTL=${TTL:-1} PAUSE=${PAUSE:-1.5}
check_ttl 0.05
check_seconds PAUSE
long_ttl # for B and C: longer than their jobs

begin "fencegate: the job that took longer than its lock."
start_gateway

part 1 "A's TTL is shorter than its job"

worker A acquire="$TTL" work="$PAUSE" after=B:acquire renew put release
outcome A acquire "acquire $RESOURCE, ttl ${TTL}s" 201
first=$TOKEN

worker B acquire_retrying="$LONG_TTL" after=C:acquire renew put release
outcome B acquire "acquire $RESOURCE, ttl ${LONG_TTL}s" 201
second=$TOKEN
must "B's token is larger than A's" test "$second" -gt "$first"

note "A's query ends. A does not know that its lease ran out:"
outcome A renew "renew" "410 lease_superseded"
outcome A put "PUT charge, X-Fencing-Token: {token}" "412 stale_fencing_token"
outcome A release "release" "410 lease_superseded"

note "None of that touched B's lease. C stays out, B goes on:"
worker C after=A:release acquire="$LONG_TTL" after=B:release acquire="$LONG_TTL" release
outcome C acquire "acquire $RESOURCE" "409 lease_held"
fact holder
must "C is told that B holds it" test "$FACT" = "$second"
outcome B renew "renew" 200
outcome B put "PUT charge, X-Fencing-Token: {token}" 201
outcome B release "release" 200
outcome C acquire "acquire $RESOURCE" 201
must "C's token is larger than B's" test "$TOKEN" -gt "$second"
outcome C release "release" 200

count_accepted
verdict "$GREEN" charges "$COUNT" 1 "CHARGED ONCE"

draw_lanes 40 A B C
