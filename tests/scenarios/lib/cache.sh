# shellcheck shell=bash
# cache.sh - the steps of a worker that reads a page from a cache: a plain file, $CACHE.
#
#     look_up    read it: a hit or a miss
#     rebuild    after a miss: make the page, which takes half a second, and store it

page= # what was read or made

do_look_up() {
    page=
    if [[ -e $CACHE ]]; then
        page=$(<"$CACHE")
        report "$name" hit ok "page=$page"
    else
        report "$name" miss ok -
    fi
}

do_rebuild() {
    if [[ -z $page ]]; then
        sleep 0.5
        page=by_$name
        printf '%s\n' "$page" >"$CACHE.$name"
        mv "$CACHE.$name" "$CACHE" # nobody reads half a page
        report "$name" rebuild ok "page=$page"
    fi
}
