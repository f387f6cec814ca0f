# A study inside the guest whose hosts and targets are weft and the kernel's: one function a step.
. /share/lib.sh

# run OPTIONS...: the study of all pairings
run() {
    $WEFT study run /share/pairings.toml --seed 7 --quiet --out /share/study "$@"
}

# The four pairings, and their page.
pairings() {
    dmesg -C
    ip link set lo up
    run --output-format json >/share/outcome.json
    within 10 nothing_is_left
    kernel_is_content
}

# The same by agents in two network namespaces with a link between them, which have one kernel.
agents() {
    local host target
    dmesg -C
    ip netns add t
    ip netns add h
    ip link add vt netns t type veth peer name vh netns h
    ip -n t address add 10.9.0.1/24 dev vt
    ip -n h address add 10.9.0.2/24 dev vh
    for of in t h; do ip -n $of link set lo up; ip -n $of link set v$of up; done
    # Not by `ip netns exec`, which hides configfs.
    target="exec:nsenter --net=/run/netns/t $WEFT agent"
    host="exec:nsenter --net=/run/netns/h $WEFT agent"
    $WEFT study run /share/pairings.toml --seed 7 --quiet --out /share/agents \
        --target-on "$target" --load-on "$host" --output-format json >/share/agents.json
    within 10 nothing_is_left
    kernel_is_content
    ip netns delete t
    ip netns delete h
}

# Polled queues of the kernel's host and of a local device, and one that has none.
polled() {
    local disk=$CONFIGFS/nullb/polled
    dmesg -C
    ip link set lo up
    $WEFT study run /share/polled.toml --seed 7 --quiet --out /share/polled \
        --output-format json >/share/polled.json
    within 10 nothing_is_left
    modprobe null_blk nr_devices=0
    mkdir $disk
    echo 64 >$disk/size
    echo 1 >$disk/poll_queues
    echo 1 >$disk/power
    within 10 test -b /dev/polled
    expect "polled queues" "$(cat /sys/block/polled/queue/io_poll)" 1
    $WEFT bench /dev/polled --hipri --rw randread --bs 4k --iodepth 8 --number-ios 5000 \
        --output-format json >/share/polled-local.json
    echo 0 >$disk/power
    rmdir $disk
    mkdir $CONFIGFS/nullb/slept
    echo 64 >$CONFIGFS/nullb/slept/size
    echo 0 >$CONFIGFS/nullb/slept/poll_queues
    echo 1 >$CONFIGFS/nullb/slept/power
    within 10 test -b /dev/slept
    ! $WEFT bench /dev/slept --hipri --rw randread --number-ios 10 2>/share/polled-refused
    rmdir $CONFIGFS/nullb/slept
    kernel_is_content
}

# killed WHO: what a study has changed is undone although it was killed. `study`: its process;
# `both`: its watchdog as well, and the next one undoes it.
killed() {
    local who=$1 pid watchdogs
    rm -rf /share/killed
    ip link set lo up
    $WEFT study run /share/pairings.toml --seed 7 --quiet --out /share/killed --runtime 60s \
        --only host_software=linux,target_software=linux --set target_idle_poll_us=20 </dev/null >/share/killed.log 2>&1 &
    pid=$!
    connected() { [ -n "$(ls /sys/class/nvme)" ] && [ -n "$(ls $CONFIGFS/nvmet/subsystems)" ]; }
    within 60 connected
    expect "idle poll" "$(cat $IDLE_POLL)" 20
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
        $WEFT agent </dev/null | cat
    fi
    within 30 nothing_is_left
}
