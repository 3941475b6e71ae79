#!/usr/bin/env bash
# Starts and stops a Slurm cluster of three nodes on this machine, for tests. Needs root and Debian's packages
# slurmctld, slurmd, slurm-client and munge; no systemd, and nothing under /etc.
#
#   slurm-cluster.sh start DIR    returns when all nodes are idle; afterwards: export SLURM_CONF=DIR/slurm.conf
#   slurm-cluster.sh node DIR n1  starts the daemon of a node
#   slurm-cluster.sh controller DIR  starts the controller again; it knows the jobs from before
#   slurm-cluster.sh stop DIR
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
what=$1 dir=$2
export SLURM_CONF=$dir/slurm.conf
case $what in
start)
    mkdir -p "$dir"/state "$dir"/spool "$dir"/run
    mkdir -m 700 -p "$dir/log"
    # ports that depend on the folder, so that two clusters do not meet
    port=$((2000 + $(printf %s "$dir" | cksum | cut -d' ' -f1) % 3000))
    sed "s#@D@#$dir#g; s#@P@#$port#g" "$here/slurm.conf" >"$dir/slurm.conf"
    (umask 077 && dd if=/dev/urandom of="$dir/munge.key" bs=1024 count=1 2>/dev/null)
    munged --key-file="$dir/munge.key" --socket="$dir/run/munge.socket" --pid-file="$dir/run/munged.pid" \
        --log-file="$dir/log/munged.log" --seed-file="$dir/run/munged.seed"
    slurmctld -c
    for node in n1 n2 n3; do slurmd -N $node; done
    for _ in $(seq 300); do
        [ "$(sinfo -h -p main -o '%t %D' 2>/dev/null)" = "idle 3" ] && exit 0
        sleep 0.1
    done
    echo "the Slurm cluster does not start; its logs are in $dir/log" >&2
    exit 1
    ;;
node) slurmd -N "$3" ;;
controller) slurmctld ;;
stop)
    for file in "$dir"/run/slurmd-*.pid "$dir/run/slurmctld.pid" "$dir/run/munged.pid"; do
        [ -f "$file" ] && kill "$(cat "$file")" 2>/dev/null || true
    done
    ;;
esac
