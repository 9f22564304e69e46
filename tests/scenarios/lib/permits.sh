# shellcheck shell=bash
# permits.sh - the steps of a worker that uses what only so many may use at once (a database that
# takes twenty connections): worker.sh with a semaphore, or with something that is none.
#
#     enter              go in, then count who is inside
#     leave              go out
#     pool=SIZE:JOBS     be a host with a connection pool of its own: SIZE connections that share
#                        JOBS jobs. Each job enters, stays until the word "leave", and leaves
#     charge_newest=N    insert a row into the plain table of charges, if our token is among the N
#                        newest that the table has seen
#
# The workers count themselves. Who enters writes it down first and then counts; who leaves writes
# it down before it gives its permit back; who was killed is out. The lines of $EVENTS have one
# order, so a count is never more than there were.

# How many are inside, as far as the events say. Sets INSIDE.
count_inside() {
    local what
    INSIDE=0
    while IFS=$'\t' read -r _ _ what _; do
        case $what in
            enter) INSIDE=$((INSIDE + 1)) ;;
            leave | SIGKILL) INSIDE=$((INSIDE - 1)) ;;
        esac
    done <"$EVENTS"
}

do_enter() {
    report "$name" enter ok -
    count_inside
    report "$name" counted ok "inside=$INSIDE"
}

do_leave() {
    report "$name" leave ok -
}

use_connection() { # JOBS
    local jobs=$1
    while ((jobs-- > 0)); do
        do_enter
        wait_for_word leave
        do_leave
    done
}

do_pool() { # SIZE:JOBS
    local size=${1%:*} connection
    for ((connection = 0; connection < size; connection++)); do
        use_connection $((${1#*:} / size)) &
    done
    wait
    report "$name" pool ok -
}

# A fence that is one number and a width, as if a semaphore were a wide lock.
do_charge_newest() { # N
    local insert row
    insert="INSERT INTO charges (token, worker) SELECT $token, '$name' \
WHERE $token > (SELECT coalesce(max(token), 0) FROM charges) - $1"
    gate sqlite3 "$TABLE" "$insert"
    row=$(sqlite3 -batch -cmd '.timeout 10000' "$TABLE" "$insert RETURNING id")
    if [[ -n $row ]]; then
        report "$name" charge ok "token=$token row=$row"
    else
        report "$name" charge refused "token=$token"
    fi
}
