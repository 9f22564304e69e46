#!/usr/bin/env bash
# gc_pause.sh - a worker is paused for longer than its lock lasts, wakes up, and charges a card
# that somebody else has charged meanwhile. Twice: first into a plain table, then through the
# gateway. `make demo` runs it.
#
# TTL=1 PAUSE=1.5 (seconds; the pause lasts at least until B has had its turn), STEP=1, FENCE_URL.

# shellcheck source-path=SCRIPTDIR source=lib/scenario.sh
source "${BASH_SOURCE[0]%/*}/lib/scenario.sh"

TTL=${TTL:-1} PAUSE=${PAUSE:-1.5}
check_ttl 0.05
check_seconds PAUSE
need sqlite3

begin "fencegate: why a lock alone is not enough.  Real processes, real SIGSTOP, about 5 s."
start_gateway

part 1 "A lock with a TTL, a plain table: nobody checks the token"

sqlite3 -batch "$TABLE" \
    "CREATE TABLE charges (id INTEGER PRIMARY KEY, invoice TEXT, amount INTEGER, worker TEXT)"

worker A acquire="$TTL" work=0.5 after=A:SIGSTOP charge
outcome A acquire "acquire $RESOURCE, ttl ${TTL}s" 201
wait_since_event 0.05
freeze A "SIGSTOP, as a GC pause would"
stopped_us=$EVENT_US

worker B acquire_retrying="$TTL" charge
outcome B acquire "acquire $RESOURCE" 201
outcome B charge "charge 100" ok

EVENT_US=$stopped_us
wait_since_event "$PAUSE"
thaw A "SIGCONT, believes that it still holds"
outcome A charge "charge 100" ok

step "sqlite3 $TABLE 'SELECT count(*) FROM charges'"
charges=$(sqlite3 -batch "$TABLE" 'SELECT count(*) FROM charges')
verdict "$RED" charges "$charges" 2 "DOUBLE CHARGE"

part 2 "The same workers, the same pause, through the gateway"

worker A acquire_retrying="$TTL" work=0.5 after=A:SIGSTOP put
outcome A acquire "acquire $RESOURCE, ttl ${TTL}s" 201
wait_since_event 0.05
freeze A "SIGSTOP, as a GC pause would"
stopped_us=$EVENT_US

worker B acquire_retrying="$TTL" after=A:put work=0.1 put
outcome B acquire "acquire $RESOURCE" 201

EVENT_US=$stopped_us
wait_since_event "$PAUSE"
thaw A "SIGCONT, believes that it still holds"
outcome A put "PUT charge, X-Fencing-Token: {token}" "412 stale_fencing_token"
outcome B put "PUT charge, X-Fencing-Token: {token}" 201

count_accepted
verdict "$GREEN" charges "$COUNT" 1 "CHARGED ONCE"

draw_lanes 21 A B
