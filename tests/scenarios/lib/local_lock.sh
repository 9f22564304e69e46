# shellcheck shell=bash
# local_lock.sh - the steps of a worker with a lock that knows nothing of other hosts: a lock file
# here, a mutex in a process, both are the same to somebody who runs elsewhere.
#
#     lock      lock the file that our host has for the resource
#     unlock    unlock it

do_lock() {
    gate flock --nonblock "$EVENTS.lock.$name"
    exec {lock_fd}>"$EVENTS.lock.$name" # each worker is on a host of its own
    if flock --nonblock "$lock_fd"; then
        report "$name" lock ok -
    else
        report "$name" lock refused -
    fi
}

do_unlock() {
    flock --unlock "$lock_fd"
    report "$name" unlock ok -
}
