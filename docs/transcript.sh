#!/usr/bin/env bash
# Writes docs/transcript.md: SPDK's own rpc.py makes a target from nothing, changes it under load, saves it, and loads it into a
# new process.
#
#     python3 -m venv /tmp/spdk && /tmp/spdk/bin/pip install spdk==26.9
#     WEFT=target/release/weft RPC=/tmp/spdk/bin/spdk-rpc docs/transcript.sh
set -euo pipefail
cd "$(dirname "$0")/.."
weft=$(realpath "${WEFT:?the binary}") rpc=$(realpath "${RPC:?the client of SPDK}")
folder=$(mktemp -d) page=$PWD/docs/transcript.md
trap 'kill $(jobs -p) 2> /dev/null || true; rm -rf "$folder"' EXIT
mkdir "$folder/bin"
ln -s "$weft" "$folder/bin/weft"
ln -s "$rpc" "$folder/bin/rpc.py"
export PATH=$folder/bin:$PATH WEFT_LOG=error
cd "$folder"

# Shows a command, runs it, and shows its output.
run() {
    echo "\$ $1"
    bash -c "$1" 2>&1 | sed "s|$folder|.|g"
}
# The same in the background, whose output comes later.
start() {
    echo "\$ $1 &"
    bash -c "exec $1" > "$2" 2>&1 &
    started=$!
}
until_there() {
    for _ in $(seq 100); do
        [ -S "$1" ] && return
        sleep 0.1
    done
    echo "there is no $1" >&2
    exit 1
}

nqn=nqn.2016-06.io.spdk:cnode1
{
    cat << EOF
# A target operated by SPDK's rpc.py
This page shows an operator how SPDK's own client (\`rpc.py\`, $("$rpc" --version 2> /dev/null || echo "PyPI's spdk")) makes a target from
nothing, changes it under load, saves it and loads it again. \`docs/transcript.sh\` has made the page
with $("$weft" --version).

\`\`\`console needs the clients of SPDK
EOF
    start "weft target --control unix:first" target.log
    target=$started
    until_there first
    run "rpc.py -s first nvmf_create_transport -t TCP"
    run "rpc.py -s first bdev_null_create N0 64 4096"
    run "rpc.py -s first bdev_malloc_create -b M0 64 4096"
    run "rpc.py -s first nvmf_create_subsystem $nqn -a -s WEFT0001"
    run "rpc.py -s first nvmf_subsystem_add_ns $nqn M0"
    run "rpc.py -s first nvmf_subsystem_add_listener $nqn -t tcp -a 127.0.0.1 -s 24420"
    echo '```'
    echo "A load that lasts while the rest is done:"
    echo '```console needs the clients of SPDK'
    start "weft bench nvme-tcp://127.0.0.1:24420/$nqn?nsid=1 --rw randread --bs 4k --iodepth 8 --runtime 6 --time_based --output-format json" load.json
    load=$started
    sleep 2
    run "rpc.py -s first nvmf_subsystem_get_controllers $nqn"
    run "rpc.py -s first nvmf_subsystem_add_ns $nqn N0"
    run "rpc.py -s first bdev_null_resize N0 128"
    run "rpc.py -s first bdev_get_bdevs -b N0 | grep -E 'name|num_blocks'"
    run "weft list nvme-tcp://127.0.0.1:24420/$nqn"
    run "rpc.py -s first bdev_get_iostat --names M0 | grep -E 'num_read_ops|read_latency_ticks|tick_rate'"
    wait "$load"
    run "grep -m 1 '\"error\"' load.json"
    run "rpc.py -s first save_config > saved.json"
    run "grep -c method saved.json"
    kill "$target"
    wait "$target"
    echo '```'
    echo "A new process, which has nothing until the file is loaded:"
    echo '```console needs the clients of SPDK'
    start "weft target --control unix:second" second.log
    until_there second
    run "rpc.py -s second load_config < saved.json"
    run "weft list nvme-tcp://127.0.0.1:24420/$nqn"
    run "weft bench nvme-tcp://127.0.0.1:24420/$nqn?nsid=1 --rw randread --bs 4k --number-ios 1000 | head -1"
    echo '```'
} > page.md
cp page.md "$page"
echo "$page"
