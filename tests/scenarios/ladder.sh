#!/usr/bin/env bash
# ladder.sh - one worker, one pause, five guards, each better than the one before. A is about to
# charge an invoice and is paused; B, which is there because A does not answer, charges it as soon
# as the guard lets it; A goes on and charges, too. Only the fifth guard, the fence, is asked once
# more at the moment of the write, and is not paused itself.
#
# TTL=1 PAUSE=1.2 (seconds; the pause lasts at least until B has had its turn), STEP=1, FENCE_URL.

# shellcheck source-path=SCRIPTDIR source=lib/scenario.sh
source "${BASH_SOURCE[0]%/*}/lib/scenario.sh"

TTL=${TTL:-1} PAUSE=${PAUSE:-1.2}
check_ttl 0.5
check_seconds PAUSE
need sqlite3 flock
need_fence
long_ttl

begin "fencegate: one worker, one pause, five guards.  Real processes, real SIGSTOP, about 8 s."
start_gateway
sqlite3 -batch "$TABLE" \
    "CREATE TABLE charges (id INTEGER PRIMARY KEY, invoice TEXT, amount INTEGER, worker TEXT)"
ladder= # the charges so far, guard by guard

# A rung of the ladder, with an invoice of its own.
rung() { # NUMBER TITLE
    part "$1" "$2"
    name_resource "invoice:$1"
}

# Since this event A has been paused.
paused() {
    stopped_us=$EVENT_US
}

# It is paused for a while, however fast B was.
pause_is_over() {
    EVENT_US=$stopped_us
    wait_since_event "$PAUSE"
}

# How many charges of the invoice the plain table has. Sets COUNT.
count_charges() {
    local select="SELECT count(*) FROM charges WHERE invoice = '$RESOURCE'"
    step "sqlite3 $TABLE \"$select\""
    COUNT=$(sqlite3 -batch "$TABLE" "$select")
}

# The end of a rung whose charges went into the plain table.
charged_twice() { # MEANING
    count_charges
    verdict "$RED" charges "$COUNT" 2 "$1"
    ladder+="$COUNT "
    draw_lanes 24 A B
}

# A worker under `fence run`, whose lease is kept for as long as that runs.
keeps=(-t "$(duration "$TTL")" --kill-after 100ms)
waits=(-t "${LONG_TTL}s")

# What becomes of A's `fence run` once it may go on.
watchdog_wakes() { # TEXT
    thaw_host A "SIGCONT, now its fence run"
    outcome A exit "$1" 79
}

rung 1 "No guard"

worker A ready after=A:SIGSTOP charge
outcome A ready "is about to charge" ok
freeze A "SIGSTOP, as a GC pause would"
paused
worker B charge
outcome B charge "charge 100" ok
pause_is_over
thaw A "SIGCONT, knows nothing of a pause"
outcome A charge "charge 100" ok
charged_twice "DOUBLE CHARGE"

rung 2 "A lock of the process, or of its host: a mutex, a lock file"

worker A lock after=A:SIGSTOP charge unlock
outcome A lock "flock invoice.lock on host A" ok
freeze A "SIGSTOP, as a GC pause would"
paused
worker B lock charge unlock
outcome B lock "flock invoice.lock on host B" ok
outcome B charge "charge 100" ok
pause_is_over
thaw A "SIGCONT, has had its lock all the time"
outcome A charge "charge 100" ok
await A unlock
charged_twice "DOUBLE CHARGE: TWO LOCKS"

rung 3 "One lock for all, with a TTL"

worker A acquire="$TTL" after=A:SIGSTOP charge
outcome A acquire "acquire $RESOURCE, ttl ${TTL}s" 201
freeze A "SIGSTOP, as a GC pause would"
paused
worker B acquire_retrying="$TTL" charge
outcome B acquire "acquire $RESOURCE" 201
outcome B charge "charge 100" ok
pause_is_over
thaw A "SIGCONT, believes that it still holds"
outcome A charge "charge 100" ok
charged_twice "DOUBLE CHARGE: THE TTL IS OVER"

rung 4 "The lock, and a watchdog that renews it and kills who lost it"

host A "${keeps[@]}" -- held after=A:SIGSTOP charge until=never
begins A "fence run, ttl ${TTL}s"
freeze_host A "SIGSTOP to all of it: as the VM is"
paused
host B "${waits[@]}" -- held charge
begins B "fence run, waits for it"
outcome B charge "charge 100" ok
outcome B exit "fence run ends" 0
pause_is_over
thaw_job A "SIGCONT, its job happens to be first"
outcome A charge "charge 100" ok
watchdog_wakes "fence run kills it: too late"
charged_twice "DOUBLE CHARGE: WHO WATCHES IT?"

rung 5 "The same, and the store checks the token"

host A "${keeps[@]}" -- held after=A:SIGSTOP put until=never
begins A "fence run, ttl ${TTL}s"
freeze_host A "SIGSTOP to all of it: as the VM is"
paused
host B "${waits[@]}" -- held after=A:put put
begins B "fence run, waits for it"
pause_is_over
thaw_job A "SIGCONT, its job happens to be first"
outcome A put "PUT charge, X-Fencing-Token: {token}" "412 stale_fencing_token"
outcome B put "PUT charge, X-Fencing-Token: {token}" 201
outcome B exit "fence run ends" 0
watchdog_wakes "fence run kills it"
count_charges
must "no charge beside the store" test "$COUNT" = 0
count_accepted
verdict "$GREEN" charges "$COUNT" 1 "CHARGED ONCE"
ladder+=$COUNT
draw_lanes 24 A B

echo
verdict "$GREEN" "the ladder" "$ladder" "2 2 2 2 1" "THE GUARD IS WHERE THE WRITE IS"
