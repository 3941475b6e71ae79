#!/usr/bin/env bash
# One run on several MPI ranks has the bytes of the same run on one process (docs/mpi.md). `./check long` calls this.
#
# It installs Open MPI if that is missing and this is root on Debian, builds `epo` with the feature `mpi`, and compares
# hashes: every algorithm, both physics, 1 to 3 ranks, killed ranks, stops, and mistakes. Messages go to stderr.
# EPO_MPI names a program that is built already.
set -euo pipefail
cd "$(dirname "$0")/../../.."
exec >&2

skip() { printf '\n!!! SKIPPED: the tests of MPI: %s\n\n' "$*"; exit 0; }
fail() { printf '\nFAILED: %s\n' "$*"; [ -f "$work/out" ] && tail -n 20 "$work/out"; exit 1; }

packages="openmpi-bin libopenmpi-dev libclang-dev"
if ! command -v mpirun >/dev/null || ! command -v mpicc >/dev/null; then
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || skip "install $packages"
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends $packages >/dev/null; } || skip "apt-get failed"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "${EPO_MPI:-}" ]; then
    cargo clippy --quiet --release -p epo-cli --features mpi -- -D warnings
    cargo build --quiet --release -p epo-cli --features mpi
    cp target/release/epo "$work/epo"
    EPO_MPI=$work/epo
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

small="--quiet --threads 1 --envs 5 --steps 3000 --set train.steps_per_epoch=1000 --set train.passes=2
       --set train.hidden=[16] --set train.final_eval_episodes=0 --set run.limit=0"
ranks() { local n=$1; shift; mpirun --oversubscribe -np "$n" "$@"; }
hash_of() { sed -n 's/^hash //p'; }

runs=0
compare() { # ARGUMENTS: the same hash without MPI and on 1, 2 and 3 ranks
    local alone several n
    alone=$("$EPO_MPI" train $small --runs "$work/runs" "$@" 2>"$work/out" | hash_of)
    [ -n "$alone" ] || fail "no hash: $*"
    for n in 1 2 3; do
        several=$(ranks $n "$EPO_MPI" train $small --runs "$work/runs" "$@" 2>"$work/out" | hash_of)
        [ "$several" = "$alone" ] || fail "$n ranks have the hash '$several', one process has '$alone': $*"
        runs=$((runs + 1))
    done
}
algorithms=$("$EPO_MPI" algos --json | sed -n 's/^ *"name": "\([a-z0-9-]*\)".*/\1/p' | sort -u)
for algo in $algorithms; do
    "$EPO_MPI" train --algo "$algo" --print-config >/dev/null 2>&1 || continue # other keys are called `name` too
    for physics in published fast; do
        compare --algo "$algo" --physics "$physics" --seed 3
    done
done
compare SafetySwimmerVelocity-v1 --set train.eval_every=2
[ $runs -ge 51 ] || fail "only $runs runs were compared"
echo "mpi: $runs runs on 1, 2 and 3 ranks have the hashes of the same runs without MPI"

# a killed rank ends the run; a resume on any number of ranks ends with the hash of the run that was not killed
long="--threads 1 --envs 6 --steps 18000 --set train.steps_per_epoch=600 --set train.passes=2 --set train.hidden=[16]
      --set train.final_eval_episodes=0"
alone=$("$EPO_MPI" train --quiet $long --runs "$work/alone" --name run 2>"$work/out" | hash_of)
rank_pid() { # the process of rank $1 below the launcher $2
    local pid
    for pid in $(pgrep -P "$2"); do
        tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$1" && echo "$pid" && return
    done
    return 1
}
begin() { # starts a run on 3 ranks in the folder $1 and waits for its third epoch
    mpirun --oversubscribe -np 3 "$EPO_MPI" train $long --runs "$1" --name run >"$work/out" 2>&1 &
    launcher=$!
    folder="$1/EPO-{SafetyPointGoal1-v0}/run"
    for _ in $(seq 600); do
        [ "$(cat "$folder/progress.csv" 2>/dev/null | wc -l)" -gt 3 ] && return
        sleep 0.1
    done
    fail "no third epoch within a minute"
}
for victim in 0 1 2; do
    begin "$work/killed-$victim"
    kill -KILL "$(rank_pid $victim $launcher)"
    began=$SECONDS
    wait $launcher && fail "a run without rank $victim ended with success"
    [ $((SECONDS - began)) -le 20 ] || fail "the run took more than 20 s to notice that rank $victim was lost"
    grep -q "rank $victim" "$work/out" || fail "the loss of rank $victim is not told"
    again=$(ranks $((victim + 1)) "$EPO_MPI" train --quiet --threads 1 --resume "$folder" 2>"$work/out" | hash_of)
    [ "$again" = "$alone" ] || fail "killed rank $victim and resumed on $((victim + 1)): '$again' instead of '$alone'"
done
echo "mpi: runs that lost rank 0, 1 or 2 and were resumed on 1, 2 or 3 ranks have the hash of the run that lost none"

# SIGUSR1 to the launcher saves and stops
begin "$work/stopped"
kill -USR1 $launcher
code=0; wait $launcher || code=$?
[ $code = 75 ] || fail "a run that was asked to stop has exit code $code instead of 75"
again=$(ranks 2 "$EPO_MPI" train --quiet --threads 1 --resume "$folder" 2>"$work/out" | hash_of)
[ "$again" = "$alone" ] || fail "stopped and resumed: '$again' instead of '$alone'"

# mistakes are told once, and end all ranks
mistake() { # EXIT-CODE TEXT ARGUMENTS
    local want=$1 text=$2 code=0; shift 2
    timeout 60 mpirun --oversubscribe -np 3 "$EPO_MPI" train "$@" >"$work/out" 2>&1 || code=$?
    [ $code = "$want" ] || fail "exit code $code instead of $want: $*"
    [ "$(grep -c "$text" "$work/out")" = 1 ] || fail "'$text' is not told once: $*"
}
mistake 2 'unknown task' NoSuchTask --runs "$work/wrong"
mistake 2 '3 ranks need at least 3 environments' --envs 2 --runs "$work/wrong"
mistake 4 'not a run folder' --resume "$work"
echo "mpi: stops and mistakes end all ranks"
