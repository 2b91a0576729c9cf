#!/usr/bin/env bash
# A throw-away Slurm cluster on one machine, for tests: munge, MariaDB, slurmdbd, slurmctld, slurmd
# on every node, sshd, device files, cgroups, accounting. All real but the NVIDIA driver.
#
#   cluster.sh up|down|status                        (root)
#   cluster.sh exec [-u USER] HOST COMMAND...        on login, ctl or node1..N
#   cluster.sh link HOST up|down                     its network cable
#
# A host is a process tree in namespaces of its own (mount, PID, UTS, IPC, network, cgroup) with an
# address on a bridge that leads nowhere else. Everything written lies in $D and goes with `down`;
# no file of the machine is changed, and hosts have their own /etc and /tmp: nothing that happens to
# the machine's reaches them. Exit code 77: this machine cannot run it; why is said.
#
#   GPUMON_CLUSTER_ID      1..254: names $D, the bridge, the network 198.18.ID.0/24 and the users' ids
#   GPUMON_CLUSTER_PYTHON  the Python with gpumon's packages; default: the checkout's .venv
#   GPUMON_CLUSTER_SLURM   more lines of slurm.conf
set -euo pipefail
umask 022
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPO=$(cd "$HERE/../../.." && pwd)
ID=${GPUMON_CLUSTER_ID:-79}
D=/var/lib/gpumon-cluster/$ID  # where only root can make anything
TAG=gpmt$ID                # of bridge, network namespaces and cgroups
NET=198.18.$ID             # RFC 2544: of test beds
UID_BASE=$((20000 + 100 * ID)) # the kernel counts processes by user, whatever the namespace
NODES=(node1 node2 node3 node4 node5)
HOSTS=(ctl login "${NODES[@]}")
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# shellcheck source=SCRIPTDIR/configure.sh
source "$HERE/configure.sh"
# shellcheck source=SCRIPTDIR/network.sh
source "$HERE/network.sh"
# shellcheck source=SCRIPTDIR/cgroups.sh
source "$HERE/cgroups.sh"

die() { echo "cluster.sh: $1" >&2; exit "${2:-1}"; }
cannot() { die "$*" 77; }

wait_for() { # SECONDS COMMAND...
  local end=$((SECONDS + $1)); shift
  until "$@" >/dev/null 2>&1; do ((SECONDS < end)) || return 1; sleep 0.03; done
}

# -- hosts ----------------------------------------------------------------------------------------
is_host() { # PID HOST: whether this is the host's first process
  [[ $(tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null) == *"host.sh $D $2 " ]]
}
pid_of() { # the host's first process as seen from here, nothing where it is down
  local pid; pid=$(cat "$D/pids/$1" 2>/dev/null) || return 0
  ! is_host "${pid:-0}" "$1" || echo "$pid"
}
is_down() { [[ -z $(pid_of "$1") ]]; }

host_up() {
  ( exec </dev/null >>"$D/log/host-$1.log" 2>&1
    cgroup_join "$1"
    exec setsid env -i PATH="$PATH" HOME=/root LANG=C.UTF-8 \
      nsenter --net="/run/netns/$TAG-$1" \
      unshare -m -u -i -p -C --fork --kill-child=SIGKILL bash "$HERE/host.sh" "$D" "$1" ) &
  echo $! >"$D/pids/$1.outer"; disown $!
}
note_pid() { # unshare's child, once it is there
  local outer children; outer=$(<"$D/pids/$1.outer")
  read -r children _ <"/proc/$outer/task/$outer/children"
  is_host "$children" "$1" && echo "$children" >"$D/pids/$1"
}

enter() { # HOST COMMAND..., as root
  local host=$1 pid; shift
  pid=$(pid_of "$host"); [[ -n $pid ]] || die "$host is not up"
  ( cgroup_rejoin "$host"; exec nsenter -t "$pid" -r -m -u -i -p -n -C -- "$@" )
}

# -- commands -------------------------------------------------------------------------------------
check_machine() {
  [[ $EUID -eq 0 ]] || cannot "needs root"
  local why program controller
  why=$(unshare -m -u -i -p -n -C --fork true 2>&1) || cannot "no namespaces: $why"
  for program in slurmctld slurmd slurmdbd sacct munged mariadbd sshd ip; do
    command -v $program >/dev/null || cannot "no $program; tests/run installs it"
  done
  for controller in memory cpuacct cpuset devices freezer; do
    [[ -n $(cgroup_of "$controller") ]] || cannot "no cgroup v1 controller '$controller'"
  done
}
ctl_listens() { enter ctl bash -c ": </dev/tcp/ctl/$1"; }
nodes_idle() {
  [[ $(enter ctl sinfo -h -N -o '%t' | grep -cE '^(idle|mix|alloc)$') -ge ${#NODES[@]} ]]
}
add_accounts() {
  enter ctl bash -c 'sacctmgr -iQ add account research Description=research Organization=uva &&
    sacctmgr -iQ add user alice,bob,carol,root account=research' >"$D/log/sacctmgr.log" 2>&1
}

up() {
  check_machine
  [[ ! -d $D ]] || down
  configure
  network_up
  local host
  for host in "${HOSTS[@]}"; do host_up "$host"; done
  for host in "${HOSTS[@]}"; do
    wait_for 120 note_pid "$host" || die "$host: $(tail -n 3 "$D/log/host-$host.log")"
  done
  wait_for 300 ctl_listens 6819 || die "slurmdbd: $(tail -n 5 "$D"/log/slurmdbd*)"
  wait_for 300 enter ctl scontrol ping || die "slurmctld: $(tail -n 5 "$D"/log/slurmctld*)"
  add_accounts || die "sacctmgr: $(tail -n 3 "$D/log/sacctmgr.log")"
  wait_for 300 nodes_idle || die "nodes are not idle: $(enter ctl sinfo -N 2>&1)"
  wait_for 120 ssh -F "$D/ssh/config" -o ConnectTimeout=2 login true || die "no ssh to login"
}

down() {
  [[ $EUID -eq 0 ]] || cannot "needs root"
  local host pid
  cgroups_thaw
  for host in "${HOSTS[@]}"; do
    pid=$(pid_of "$host"); [[ -z $pid ]] || kill -9 "$pid" # and the kernel all below it
  done
  for host in "${HOSTS[@]}"; do wait_for 120 is_down "$host" || die "$host does not end"; done
  cgroups_down
  network_down
  rm -rf --one-file-system "$D"
}

status() {
  [[ -d $D ]] || { echo "down"; return 3; }
  local host
  for host in "${HOSTS[@]}"; do
    if is_down "$host"; then echo "$host: down"
    else echo "$host: $(enter "$host" ps -eo comm= | sort | uniq -c | tr -s ' \n' ' ')"; fi
  done
  enter ctl sinfo
}

run() { # [-u USER] HOST COMMAND...
  local user=root as=() home=/root
  if [[ $1 == -u ]]; then user=$2; shift 2; fi
  if [[ $user != root ]]; then as=(runuser -u "$user" --); home=$D/home/$user; fi
  local host=$1; shift
  enter "$host" "${as[@]}" env -i -C "$home" PATH="$D/bin:$PATH" HOME="$home" USER="$user" \
    LOGNAME="$user" SHELL=/bin/bash LANG=C.UTF-8 TERM="${TERM:-dumb}" "$@"
}

case ${1:-} in
  up) up ;;
  down) down ;;
  status) status ;;
  exec) shift; run "$@" ;;
  link) ip -n "$TAG-sw" link set "$2" "$3" ;;
  *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 2 ;;
esac
