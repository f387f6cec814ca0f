# A study inside the guest whose hosts and targets are weft and the kernel's: one function a step.
. /share/lib.sh

# Nothing of a study is left: no subsystem, port, disk, connection, journal or process.
nothing_is_left() {
    local left
    left=$(ls $CONFIGFS/nvmet/subsystems $CONFIGFS/nvmet/ports /sys/class/nvme 2>/dev/null |
        grep -v ':$' | tr '\n' ' ')
    left+=$(ls /run/weft-study 2>/dev/null || true)
    left+=$(find $CONFIGFS/nullb -mindepth 1 -maxdepth 1 -type d 2>/dev/null || true)
    left+=$(pgrep -a '^weft$' || true)
    echo "left: $left"
    [ -z "${left// /}" ]
}

# run OPTIONS...: the study of all pairings
run() {
    /share/weft study run /share/pairings.toml --seed 7 --quiet --out /share/study "$@"
}

# The four pairings, and their page.
pairings() {
    dmesg -C
    ip link set lo up
    run --output-format json >/share/outcome.json
    within 10 nothing_is_left
    kernel_is_content
}

# killed WHO: what a study has changed is undone although it was killed. `study`: its process;
# `both`: its watchdog as well, and the next one undoes it.
killed() {
    local who=$1 pid watchdogs
    rm -rf /share/study
    ip link set lo up
    /share/weft study run /share/pairings.toml --seed 7 --quiet --out /share/study --runtime 60s \
        --only host_software=linux,target_software=linux </dev/null >/share/killed.log 2>&1 &
    pid=$!
    connected() { [ -n "$(ls /sys/class/nvme)" ] && [ -n "$(ls $CONFIGFS/nvmet/subsystems)" ]; }
    within 60 connected
    if [ "$who" = both ]; then
        watchdogs=$(pgrep -f 'agent --watch')
        kill -KILL $watchdogs
    fi
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null || true
    if [ "$who" = both ]; then
        sleep 1
        connected || fail "somebody undid it"
        # An agent undoes it when it begins.
        /share/weft agent </dev/null | cat
    fi
    within 30 nothing_is_left
}
