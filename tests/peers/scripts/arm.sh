# weft's target on a processor of Arm, which is emulated beside this guest: one function a step.
. /share/lib.sh

# Data, a file system, and digests, which the processor's own instructions compute.
serves() {
    local options device
    for options in "" "--hdr-digest --data-digest"; do
        fresh
        connect $options
        device=$(namespace 1)
        verified "$device" --size=4M --bsrange=4k-256k --iodepth=16 --name=one --name=two --offset=8M
        mkfs.ext4 -q "$device"
        mount "$device" /mnt
        cp /usr/lib/x86_64-linux-gnu/libc.so.6 /mnt
        umount /mnt
        fsck.ext4 -fn "$device"
        mount "$device" /mnt
        cmp /usr/lib/x86_64-linux-gnu/libc.so.6 /mnt/libc.so.6
        umount /mnt
        blkdiscard -z -o 0 -l $((4 << 20)) "$device"
        all_zero "$device" 0 4 || fail "zeroed blocks are not zero"
        disconnect
        kernel_is_content
    done
}
