# Linux' host against images of a Ceph cluster, which weft serves outside: one function a step.
# Namespace 1 is for files, of namespace 2 the driver looks at the objects.
. /share/lib.sh

file_system() {
    fresh
    connect
    verified "$(namespace 1)" --iodepth=16 --name=small --bs=4k --size=1M \
        --name=large --bs=64k --offset=16M --size=16M
    keeps_files 1 /etc /usr/bin/fio
    kernel_is_content
}

before_resize() {
    fresh
    connect
    namespace 1 >/tmp/device
}

# resized BYTES: without a rescan by hand
resized() {
    within 10 has_size "$(cat /tmp/device)" "$1"
    disconnect
    kernel_is_content
}

fill() {
    fresh
    connect
    dd if=/dev/urandom of="$(namespace 2)" bs=4M count=4 oflag=direct status=none
}

# Write Zeroes without Deallocate.
write_zeroes() {
    local device
    device=$(namespace 2)
    blkdiscard -f -z -o 0 -l $((8 << 20)) "$device"
    all_zero "$device" 0 8
}

# A whole object.
discard() {
    local device
    device=$(namespace 2)
    blkdiscard -f -o 0 -l $((4 << 20)) "$device"
    all_zero "$device" 0 4
    disconnect
    kernel_is_content
}

# A namespace that the host makes.
made() {
    fresh
    connect
    local controller
    controller=/dev/$(controllers)
    namespace 1
    nvme create-ns "$controller" --nsze=4096 --ncap=4096 --block-size=4096
    nvme attach-ns "$controller" -n 3 -c "$(nvme id-ctrl "$controller" -o json | jq -r .cntlid)"
    verified "$(namespace 3)" --bs=4k --size=4M --iodepth=16 --name=made
    if nvme create-ns "$controller" --nsze=8192 --ncap=8192 --block-size=4096; then
        fail "a namespace was made beyond the capacity"
    fi
}

deleted() {
    nvme delete-ns "/dev/$(controllers)" -n 3
    without_made() { ! find_namespace 3; }
    within 10 without_made
    disconnect
    kernel_is_content
}
