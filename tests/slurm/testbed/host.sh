#!/usr/bin/env bash
# PID 1 of one host: `host.sh DIRECTORY HOST`. Mounts what is the host's own, starts its daemons.
D=$1
H=$2
# shellcheck source=/dev/null
source "$D/settings.sh"
hostname "$H"

read_only() { mount --bind "$1" "$2" && mount -o remount,bind,ro "$2"; }

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 cgroup_root /sys/fs/cgroup
for controller in $CONTROLLERS; do
  mkdir /sys/fs/cgroup/"$controller"
  mount -t cgroup -o "$controller" cgroup /sys/fs/cgroup/"$controller"
done
mount -t tmpfs -o mode=755,size=64m tmpfs /run
mount -t tmpfs -o mode=1777,size=64m tmpfs /dev/shm # programs take it for one of their machine
mkdir -p /run/sshd /run/mysqld /run/lock /run/munge
mount --bind "$D/munge" /run/munge
mount --bind "$D/etc" /etc # all of it: a mount on a file goes when that is replaced from outside
read_only "$PYTHON_PREFIX" "$D/python"
read_only "$PYTHON_PACKAGES" "$D/packages"
read_only "$REPO/gpumon" "$D/source/gpumon"
for folder in tmp var/tmp; do # last: what is above may lie there
  mkdir -p -m 1777 "$D/tmp/$H/$folder"
  mount --bind "$D/tmp/$H/$folder" /$folder
done

node_devices() { # a private /dev: opening an allowed GPU says ENXIO, a forbidden one EPERM
  local name dev=/run/dev
  mkdir $dev
  mount -t tmpfs -o mode=755,size=1m tmpfs $dev
  for name in null zero full random urandom tty; do
    touch $dev/$name
    mount --bind /dev/$name $dev/$name
  done
  mkdir $dev/pts $dev/shm
  mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts $dev/pts
  mount -t tmpfs -o mode=1777 tmpfs $dev/shm
  ln -s pts/ptmx $dev/ptmx
  ln -s /proc/self/fd $dev/fd
  for name in 0:stdin 1:stdout 2:stderr; do ln -s /proc/self/fd/"${name%:*}" "$dev/${name#*:}"; done
  for name in 0 1 2 3; do mknod -m 666 $dev/nvidia$name c 195 $name; done
  mknod -m 666 $dev/nvidiactl c 195 255
  mount --move $dev /dev
}

database() { # in memory; straight from the tables' script, which needs no client package
  mount -t tmpfs -o mode=700,size=1g tmpfs "$D/mysql"
  mkdir "$D/mysql/mysql"
  { echo "use mysql;"; cat /usr/share/mysql/mysql_system_tables.sql; } |
    mariadbd --defaults-file="$D/config/my.cnf" --bootstrap >"$D/log/mariadb-bootstrap.log" 2>&1
  mariadbd --defaults-file="$D/config/my.cnf" >"$D/log/mariadb.log" 2>&1 &
  until [[ -S /run/mysqld/mysqld.sock ]]; do sleep 0.02; done
}
until_listening() { until (: <"/dev/tcp/ctl/$1") 2>/dev/null; do sleep 0.03; done; }

case $H in
  ctl)
    munged --foreground --force --num-threads=4 --key-file="$D/config/munge.key" \
      --socket="$D/munge/munge.socket.2" --pid-file=/run/munged.pid \
      --seed-file="$D/munge/seed" --log-file="$D/log/munged.log" >>"$D/log/munged.out" 2>&1 &
    database
    slurmdbd >>"$D/log/slurmdbd.out" 2>&1
    until_listening 6819
    slurmctld -i >>"$D/log/slurmctld.out" 2>&1
    ;;
  node*)
    node_devices
    mount --bind "$D/config/ld.so.cache" /etc/ld.so.cache
    ln -s "$D/nodes/$H.scn" /run/fake-nvml.scn
    if [[ $H == "$ADOPTING_NODE" ]]; then mount --bind "$D/config/pam-sshd" /etc/pam.d/sshd; fi
    (until_listening 6817; exec slurmd -N "$H" >>"$D/log/slurmd-$H.out" 2>&1) &
    ;;
esac
[[ $H == ctl ]] || "$D/bin/start-sshd"
trap : CHLD TERM INT HUP
while :; do sleep 86400 & wait $!; done # bash reaps orphans
