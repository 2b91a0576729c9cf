# shellcheck shell=bash disable=SC2154
# Writes everything below $D: users, ssh, Slurm, the database, gpumon and the emulated driver.

ADOPTING_NODE=node3 # ssh there is guarded by pam_slurm_adopt, where that is installed
CPUS=8              # per node; as many as are declared, on however few there are
MEM_MIB=64000

configure() {
  mkdir -p "$D"/{bin,cgroups,config,etc,home,log,mysql,munge,nodes,nvml,packages,pids,python} \
    "$D"/{source/gpumon,spool,ssh,state,tmp}
  chmod 755 "$D"
  chmod 700 "$D/mysql"
  configure_etc
  configure_users
  configure_ssh
  configure_slurm
  configure_database
  configure_gpumon
  configure_driver
  head -c 128 /dev/urandom >"$D/config/munge.key"
  chmod 600 "$D/config/munge.key"
  cat >"$D/settings.sh" <<E
export PATH='$PATH'
REPO='$REPO' CONTROLLERS='$(for c in "${CONTROLLERS[@]}"; do [[ -z $(cgroup_of "$c") ]] || echo -n "$c "; done)'
PYTHON_PREFIX='$PYTHON_PREFIX' PYTHON_PACKAGES='$PYTHON_PACKAGES' ADOPTING_NODE='$ADOPTING_NODE'
E
}

configure_etc() { # a copy for the hosts, for whoever installs something replaces files of the machine's
  local file
  cp -a /etc/. "$D/etc/" 2>/dev/null || true # what is replaced meanwhile vanishes
  for file in passwd group hosts ssh/ssh_config; do rm -f "$D/etc/$file"; done # not through links
  rm -rf "$D/etc/slurm"
  mkdir -p "$D/etc/slurm" "$D/etc/ssh"
}

configure_users() { # the homes are on every host
  local user id=$UID_BASE
  grep -vE '^(alice|bob|carol):' /etc/passwd >"$D/etc/passwd"
  grep -vE '^(alice|bob|carol|lab):' /etc/group >"$D/etc/group"
  echo "lab:x:$id:alice,bob,carol" >>"$D/etc/group"
  ssh-keygen -q -t ed25519 -N '' -C "$TAG user" -f "$D/ssh/id_ed25519"
  for user in alice bob carol; do
    id=$((id + 1))
    echo "$user:x:$id:$UID_BASE:$user:$D/home/$user:/bin/bash" >>"$D/etc/passwd"
    mkdir -p "$D/home/$user/.ssh"
    cp "$D"/ssh/id_ed25519* "$D/home/$user/.ssh/"
    chmod 700 "$D/home/$user" "$D/home/$user/.ssh"
    chown -R "$id:$UID_BASE" "$D/home/$user"
  done
}

configure_ssh() {
  local host adopt
  adopt=$(compgen -G '/usr/lib/security/pam_slurm_adopt.so' ||
    compgen -G '/usr/lib/*/security/pam_slurm_adopt.so' || true)
  [[ -n $adopt ]] || ADOPTING_NODE=
  ssh-keygen -q -t ed25519 -N '' -C "$TAG host" -f "$D/ssh/host_ed25519"
  cp "$D/ssh/id_ed25519.pub" "$D/ssh/authorized_keys"
  { echo "127.0.0.1 localhost"
    for host in laptop "${HOSTS[@]}"; do echo "$(address_of "$host") $host"; done
  } >"$D/etc/hosts"
  for host in "${HOSTS[@]}"; do
    echo "$host,$(address_of "$host") $(cut -d' ' -f1,2 "$D/ssh/host_ed25519.pub")"
  done >"$D/ssh/known_hosts"
  cat >"$D/ssh/sshd_config" <<E
HostKey $D/ssh/host_ed25519
PidFile /run/sshd.pid
AuthorizedKeysFile $D/ssh/authorized_keys
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
PrintMotd no
PrintLastLog no
UseDNS no
AcceptEnv LANG LC_*
MaxStartups 200
MaxSessions 100
Subsystem sftp internal-sftp
E
  cat >"$D/bin/start-sshd" <<E
#!/bin/sh
case \$(hostname) in $ADOPTING_NODE) pam=yes ;; *) pam=no ;; esac
exec /usr/sbin/sshd -o UsePAM=\$pam -f $D/ssh/sshd_config -E $D/log/sshd-\$(hostname).log
E
  chmod 755 "$D/bin/start-sshd"
  cat >"$D/config/pam-sshd" <<E
auth     required pam_permit.so
account  required $adopt action_no_jobs=deny action_unknown=newest
account  required pam_permit.so
session  required pam_permit.so
E
  # inside the cluster
  printf '%s\n' "Host *" "  UserKnownHostsFile $D/ssh/known_hosts" "  StrictHostKeyChecking yes" \
    >"$D/etc/ssh/ssh_config"
  # from the laptop: nodes only through login
  { printf 'Host login\n  HostName %s\n' "$(address_of login)"
    for host in "${NODES[@]}"; do
      printf 'Host %s\n  HostName %s\n  ProxyJump login\n' "$host" "$(address_of "$host")"
      printf 'Host %s-direct\n  HostName %s\n  HostKeyAlias %s\n' \
        "$host" "$(address_of "$host")" "$host"
    done
    cat <<E
Host *
  User alice
  IdentityFile $D/ssh/id_ed25519
  IdentitiesOnly yes
  UserKnownHostsFile $D/ssh/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
E
  } >"$D/ssh/config"
}

configure_slurm() {
  local host nodes="node[1-${#NODES[@]}]"
  echo "NodeName=$nodes Name=gpu Type=a100 File=/dev/nvidia[0-3]" >"$D/etc/slurm/gres.conf"
  cat >"$D/etc/slurm/cgroup.conf" <<E
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
ConstrainCores=no
ConstrainRAMSpace=yes
ConstrainSwapSpace=no
ConstrainDevices=yes
E
  { cat <<E
ClusterName=gpumon
SlurmctldHost=ctl($(address_of ctl))
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$D/munge/munge.socket.2
StateSaveLocation=$D/state
SlurmdSpoolDir=$D/spool/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=$D/log/slurmctld.log
SlurmdLogFile=$D/log/slurmd-%n.log
SlurmctldDebug=info
SlurmdDebug=info
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
PrologFlags=Contain
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/cgroup
JobAcctGatherFrequency=task=1
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=ctl
AccountingStoreFlags=job_comment,job_env,job_script
AccountingStorageTRES=gres/gpu,gres/gpu:a100
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=10000,bf_interval=1
PriorityType=priority/multifactor
KillWait=3
CompleteWait=0
InactiveLimit=0
MinJobAge=600
SlurmctldTimeout=30
SlurmdTimeout=300
TCPTimeout=5
DefMemPerCPU=1000
MaxArraySize=1001
${GPUMON_CLUSTER_SLURM:-}
E
    for host in "${NODES[@]}"; do
      echo "NodeName=$host NodeAddr=$(address_of "$host") Sockets=1 CoresPerSocket=$CPUS" \
        "ThreadsPerCore=1 RealMemory=$MEM_MIB Gres=gpu:a100:4"
    done
    # the last two are for tests that break them
    echo "PartitionName=standard Nodes=node[1-3] Default=YES MaxTime=1-0 DefaultTime=10 State=UP"
    echo "PartitionName=gpu Nodes=node[1-3] MaxTime=3-0 DefaultTime=10 State=UP"
    echo "PartitionName=faults Nodes=node[4-5] MaxTime=1-0 DefaultTime=10 State=UP"
    echo "PartitionName=all Nodes=$nodes MaxTime=1-0 DefaultTime=10 State=UP"
  } >"$D/etc/slurm/slurm.conf"
  for host in "${NODES[@]}"; do mkdir -p "$D/spool/$host"; done
}

configure_database() {
  cat >"$D/etc/slurm/slurmdbd.conf" <<E
DbdHost=ctl
AuthType=auth/munge
AuthInfo=socket=$D/munge/munge.socket.2
SlurmUser=root
LogFile=$D/log/slurmdbd.log
PidFile=/run/slurmdbd.pid
DebugLevel=info
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
E
  chmod 600 "$D/etc/slurm/slurmdbd.conf"
  # small and quick: what is lost in a crash is of no worth
  cat >"$D/config/my.cnf" <<E
[mariadbd]
user=root
datadir=$D/mysql
socket=/run/mysqld/mysqld.sock
pid-file=/run/mysqld/mysqld.pid
skip-networking
skip-grant-tables
skip-name-resolve
performance-schema=0
innodb-buffer-pool-size=32M
innodb-log-file-size=8M
innodb-autoextend-increment=1
innodb-temp-data-file-path=ibtmp1:4M:autoextend
innodb-data-file-path=ibdata1:6M:autoextend
max-connections=50
innodb-flush-method=nosync
innodb-flush-log-at-trx-commit=0
innodb-doublewrite=0
innodb-use-native-aio=0
innodb-lock-wait-timeout=900
aria-pagecache-buffer-size=8M
key-buffer-size=1M
E
}

configure_gpumon() { # an environment as a user makes it: on the shared file system, in her PATH
  local python=${GPUMON_CLUSTER_PYTHON:-$REPO/.venv/bin/python} version
  { read -r PYTHON_PREFIX; read -r PYTHON_PACKAGES; read -r version; } < <("$python" -c '
import sys, sysconfig
print(sys.base_prefix, sysconfig.get_path("platlib"), "%d.%d" % sys.version_info[:2], sep="\n")')
  mkdir -p "$D/venv/bin" "$D/venv/lib/python$version/site-packages"
  ln -s "$D/python/bin/python$version" "$D/venv/bin/python"
  echo "home = $D/python/bin" >"$D/venv/pyvenv.cfg"
  [[ ! -x ${python%/*}/py-spy ]] || cp "${python%/*}/py-spy" "$D/venv/bin/"
  printf '%s\n' "$D/source" "$D/packages" >"$D/venv/lib/python$version/site-packages/gpumon.pth"
  cat >"$D/bin/gpumon" <<E
#!$D/venv/bin/python
import sys
from gpumon.cli import main
sys.exit(main())
E
  chmod 755 "$D/bin/gpumon"
  ln -s "$(command -v python3)" "$D/bin/python" # what the users' own scripts call
}

node_gpus() { # HOST: four GPUs, none of them any other node's
  local index
  printf '%s\n' "[system]" "device_files = 1" "[gpu 0-3]" "model = A100-SXM4-80GB" "util = 60" \
    "mem = 20000"
  for index in 0 1 2 3; do
    printf '%s\n' "[gpu $index]" "minor = $index" \
      "uuid = GPU-0000000${1#node}-0000-4000-8000-00000000000$index"
  done
}

configure_driver() { # where the linker finds it on the nodes, as if it were installed
  local host
  make -s -C "$REPO/tests/nvml" all
  cp "$REPO/tests/nvml/build/libnvidia-ml.so.1" "$D/nvml/"
  { cat /etc/ld.so.conf; echo "$D/nvml"; } >"$D/config/ld.so.conf"
  ldconfig -X -f "$D/config/ld.so.conf" -C "$D/config/ld.so.cache"
  for host in "${NODES[@]}"; do node_gpus "$host" >"$D/nodes/$host.scn"; done
}
