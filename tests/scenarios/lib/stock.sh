# shellcheck shell=bash
# stock.sh - the steps of a worker that sells from a stock: worker.sh with nothing to lock. What it
# has read it remembers, as a shop's page does while the customer looks for the credit card.
#
#     look            read from a plain SQLite table how much is left
#     take            write one less back: nobody checks anything
#     unfence         tell the gateway that the resource needs no lock
#     stock=N         write how much is left, for the first time
#     read            read from the gateway how much is left, and which version says so
#     sell_blind      write one less back, without a word about the version
#     sell            write one less back, if the version is still the one that was read
#     buy             read and sell, again while somebody else was faster, until one is sold or none
#                     is left (STEP=1 or not)

left=    # how much there was when we looked
version= # what the gateway called it: "v3", with its quotes

do_look() {
    local select="SELECT pieces FROM stock"
    gate sqlite3 "$TABLE" "$select"
    left=$(sqlite3 -batch -cmd '.timeout 10000' "$TABLE" "$select")
    report "$name" look ok "left=$left"
}

do_take() {
    local update="UPDATE stock SET pieces = $((left - 1))"
    gate sqlite3 "$TABLE" "$update"
    if sqlite3 -batch -cmd '.timeout 10000' "$TABLE" "$update"; then
        report "$name" take ok "left=$((left - 1))"
    else
        report "$name" take failed -
    fi
}

do_unfence() {
    local put=(-X PUT "$FENCE_URL/resources/$RESOURCE" -d '{"fenced":false}')
    gate curl -i "${put[@]}"
    request "${put[@]}"
    report "$name" unfence "$status" "fenced=$(field fenced)"
}

# A write of how much is left, from now on.
put_left() { # WHAT-IT-IS-REPORTED-AS LEFT CURL-ARGUMENT...
    local put=(-X PUT "$FENCE_URL/store/$RESOURCE/left" -d "$2" "${@:3}")
    [[ $1 == buy ]] || gate curl -i "${put[@]}"
    request "${put[@]}"
    if [[ $status == 20? ]]; then
        report "$name" "$1" "$status" "left=$2 version=$(field version)"
    elif [[ $1 != buy || $status != 412 ]]; then
        report "$name" "$1" "$status" "$(refusal)"
    fi
}

do_stock() { # PIECES
    put_left stock "$1" -H 'If-None-Match: *'
}

read_left() {
    request "$FENCE_URL/store/$RESOURCE/left"
    left=$body
    version=$(header ETag)
}

do_read() {
    gate curl -i "$FENCE_URL/store/$RESOURCE/left"
    read_left
    report "$name" read "$status" "left=$left version=${version//[!0-9]/}"
}

do_sell_blind() {
    put_left sell_blind $((left - 1))
}

do_sell() {
    put_left sell $((left - 1)) -H "If-Match: $version"
}

do_buy() {
    while true; do
        read_left
        if [[ $status != 200 || $left == 0 ]]; then
            report "$name" buy "$status" "left=$left"
            return
        fi
        put_left buy $((left - 1)) -H "If-Match: $version"
        if [[ $status != 412 ]]; then
            return
        fi
        report "$name" again "$status" "left=$left"
    done
}
