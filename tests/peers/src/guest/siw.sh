# Compiles soft-iWARP. The working folder is a small Debian; $1 is the kernel's version.
mount --rbind /dev dev
[ -e usr/bin/sh ] || ln -s bash usr/bin/sh
[ -e usr/bin/awk ] || ln -s gawk usr/bin/awk
mkdir -p tmp
export PATH=/usr/bin:/usr/sbin:/bin LC_ALL=C
chroot . /usr/bin/bash -euc '
    source=$(echo /usr/src/linux-source-*.tar.xz)
    name=$(basename "$source" .tar.xz)
    tar -xJf "$source" -C /tmp "$name/drivers/infiniband/sw/siw"
    mv "/tmp/$name/drivers/infiniband/sw/siw" /usr/src/siw
    make -s -j2 -C "/usr/src/linux-headers-$1" M=/usr/src/siw CONFIG_RDMA_SIW=m modules
    strip --strip-debug /usr/src/siw/siw.ko
' siw "$1"
