# shellcheck shell=bash disable=SC2154
# The network: a bridge in a namespace of its own (the machine's firewall does not see it) and one
# cable to every host. 198.18.ID.1 is this machine: where the user sits.

address_of() {
  case $1 in
    laptop) echo "$NET.1" ;;
    ctl) echo "$NET.2" ;;
    login) echo "$NET.10" ;;
    node*) echo "$NET.$((10 + ${1#node}))" ;;
  esac
}

network_up() {
  local host address
  ip netns add "$TAG-sw"
  ip -n "$TAG-sw" -batch - <<E
link set lo up
link add br0 type bridge stp_state 0 forward_delay 0
link set br0 up
E
  ip link add "$TAG" type veth peer name laptop netns "$TAG-sw"
  ip -n "$TAG-sw" link set laptop master br0 up
  ip addr add "$(address_of laptop)/24" dev "$TAG"
  ip link set "$TAG" up
  for host in "${HOSTS[@]}"; do
    address=$(address_of "$host")
    ip netns add "$TAG-$host"
    ip -n "$TAG-$host" link add eth0 type veth peer name "$host" netns "$TAG-sw"
    # quickack: slurmdbd writes an RPC in two parts; Nagle and delayed ACK would cost 80 ms each
    ip -n "$TAG-$host" -batch - <<E
link set lo up
addr add $address/24 dev eth0
link set eth0 up
route change local $address dev eth0 table local proto kernel scope host src $address quickack 1
route change $NET.0/24 dev eth0 proto kernel scope link src $address quickack 1
E
    ip -n "$TAG-sw" link set "$host" master br0 up
  done
}

network_down() {
  local namespace
  ip link del "$TAG" 2>/dev/null || true
  for namespace in $(ip netns list | awk '{print $1}' | grep -E "^$TAG-" || true); do
    ip netns del "$namespace"
  done
}
