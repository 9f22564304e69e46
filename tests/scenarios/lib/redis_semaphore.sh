# shellcheck shell=bash
# redis_semaphore.sh - the steps of a worker that takes one of N permits from Redis alone, in the
# two ways that come to mind first. The status of each event is what redis-cli printed.
#
#     incr=N     INCR the number of permits in use. More than N: DECR it again, stay out
#     decr       give the permit of incr back
#     zcard=N    look how many permits are in use: fewer than N means that there is one for us
#     zadd       take the one that zcard saw
#
# Environment: REDIS_SOCKET.

permit= # set: we believe that we have one

ask_redis() { # COMMAND ARGUMENT...
    gate redis-cli -s "$REDIS_SOCKET" "$@"
    answer=$(redis-cli -s "$REDIS_SOCKET" "$@")
}

do_incr() { # N
    local answer
    ask_redis INCR permits
    report "$name" incr "$answer" -
    if ((answer <= $1)); then
        permit=yes
        return
    fi
    ask_redis DECR permits
    report "$name" decr "$answer" -
}

do_decr() {
    local answer
    if [[ -n $permit ]]; then
        ask_redis DECR permits
        report "$name" decr "$answer" -
        permit=
    fi
}

do_zcard() { # N
    local answer
    ask_redis ZCARD permits
    report "$name" zcard "$answer" -
    if ((answer < $1)); then
        permit=yes
    fi
}

do_zadd() {
    local answer
    if [[ -n $permit ]]; then
        ask_redis ZADD permits "${EPOCHREALTIME%.*}" "$name"
        report "$name" zadd "$answer" -
    fi
}
