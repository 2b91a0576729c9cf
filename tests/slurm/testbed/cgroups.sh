# shellcheck shell=bash disable=SC2154
# cgroup v1: a directory for each host below our own, in every controller. The host's cgroup
# namespace begins there, so that its paths read as on a machine: /slurm_node1/uid_…/job_…

CONTROLLERS=(memory cpuset cpu cpuacct devices freezer pids blkio)

cgroup_of() { # our own directory of a controller, nothing where v1 does not have it
  local mount path
  mount=$(awk -v c="$1" '$3=="cgroup" && (","$4",") ~ (","c",") {print $2; exit}' /proc/mounts)
  path=$(awk -F: -v c="$1" '(","$2",") ~ (","c",") {print $3; exit}' /proc/self/cgroup)
  [[ -z $mount ]] || echo "$mount${path%/}"
}

cgroup_join() { # HOST: put this process into the host's new cgroups, and note them
  local controller own directory
  for controller in "${CONTROLLERS[@]}"; do
    own=$(cgroup_of "$controller")
    [[ -n $own ]] || continue
    for directory in "$own/$TAG" "$own/$TAG/$1"; do
      mkdir -p "$directory"
      if [[ $controller == cpuset ]]; then
        cat "${directory%/*}/cpuset.cpus" >"$directory/cpuset.cpus"
        cat "${directory%/*}/cpuset.mems" >"$directory/cpuset.mems"
      fi
    done
    echo "$directory" >>"$D/cgroups/$1"
  done
  cgroup_rejoin "$1"
}

cgroup_rejoin() { # HOST: else /proc/self/cgroup would read "/../.." there
  local directory
  while read -r directory; do echo "$BASHPID" >"$directory/cgroup.procs"; done <"$D/cgroups/$1"
}

cgroups_thaw() { # a frozen process (a suspended job) does not die
  local state
  for state in $(cat "$D"/cgroups/* 2>/dev/null | grep /freezer/); do
    find "$state" -name freezer.state -exec sh -c 'echo THAWED >"$1"' - {} \; 2>/dev/null || true
  done
}

cgroups_down() {
  local top
  for top in $(cat "$D"/cgroups/* 2>/dev/null | sed "s,/$TAG/[^/]*\$,/$TAG," | sort -u); do
    [[ ! -d $top ]] || wait_for 10 remove_tree "$top" || echo "left behind: $top" >&2
  done
}
remove_tree() { find "$1" -depth -type d -exec rmdir {} +; }
