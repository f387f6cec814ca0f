# The steps of rdma.sh over soft-iWARP, whose module the driver has put into the shared folder.
KIND=siw
. /share/rdma.sh

load() {
    modprobe libcrc32c
    insmod /share/siw.ko
    device
}
